/* Code that is written, run, written over and run again, through one writable and executable mapping. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
int main(void){ unsigned char*p=mmap(0,4096,7,MAP_PRIVATE|MAP_ANONYMOUS,-1,0); int s=0;
 for(int i=0;i<200;i++){ unsigned char c[]={0xb8,i,0,0,0,0xc3}; memcpy(p,c,6); s+=((int(*)(void))p)(); s+=((int(*)(void))p)(); }
 printf("%d\n",s); return 0; }
