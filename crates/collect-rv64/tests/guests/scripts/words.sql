-- What a database does: tables, an index, joins, aggregates, a transaction.
create table numbers(n integer primary key, square real, name text);
with recursive c(n) as (select 1 union all select n + 1 from c where n < 2000)
insert into numbers select n, n * n * 0.5, printf('%05d', n * 7919 % 2003) from c;
create index by_name on numbers(name);
select count(*), sum(square), min(name), max(name) from numbers;
begin; delete from numbers where n % 3 = 0; rollback;
select a.n, b.n from numbers a join numbers b on a.name = b.name and a.n < b.n order by 1 limit 5;
select name, n from numbers where name between '00100' and '00110' order by name;
select n % 7, avg(square), group_concat(substr(name, 5), '') from numbers where n < 50 group by 1;
