! A wave on a string of rooms, and the energy in it: waves SIZE TURNS
module field
  implicit none
  integer, parameter :: wide = selected_real_kind(12)
contains
  subroutine step(now, before, after, speed)
    real(wide), intent(in) :: now(:, :), before(:, :), speed
    real(wide), intent(out) :: after(:, :)
    integer :: i, j
    after = 0
    do j = 2, size(now, 2) - 1
      do i = 2, size(now, 1) - 1
        after(i, j) = 2 * now(i, j) - before(i, j) &
          + speed * (now(i - 1, j) + now(i + 1, j) + now(i, j - 1) + now(i, j + 1) - 4 * now(i, j))
      end do
    end do
  end subroutine
  function energy(now, before) result(total)
    real(wide), intent(in) :: now(:, :), before(:, :)
    real(wide) :: total
    total = sum((now - before)**2) + sum((now(2:, :) - now(:size(now, 1) - 1, :))**2) * 0.25_wide
  end function
end module
program waves
  use field
  implicit none
  real(wide), allocatable :: a(:, :), b(:, :), c(:, :)
  character(len=32) :: word
  integer :: n, turns, t
  real(wide) :: start, least, most
  n = 24
  turns = 10
  if (command_argument_count() > 0) then
    call get_command_argument(1, word)
    read (word, *) n
  end if
  if (command_argument_count() > 1) then
    call get_command_argument(2, word)
    read (word, *) turns
  end if
  allocate (a(n, n), b(n, n), c(n, n))
  a = 0
  a(n / 2, n / 3) = 1
  a(n / 3, n / 2) = -2
  b = a
  start = energy(a, b)
  least = start
  most = start
  do t = 1, turns
    call step(a, b, c, 0.25_wide)
    call step(c, a, b, 0.25_wide)
    call step(b, c, a, 0.25_wide)
    c = b
    b = c
    least = min(least, energy(a, b))
    most = max(most, energy(a, b))
  end do
  if (most < 100 * start .and. least > 0) then
    print '(a, i0, a, i0, a)', 'waves of ', n, ', ', turns, ' turns: kept'
  else
    print *, 'wrong', start, least, most
    stop 1
  end if
end program
