package kernel

//go:generate go tool bpf2go -cc clang -strip llvm-strip -tags linux -type state -type member -target bpfel,bpfeb -cflags "-O2 -Wall -Werror -mcpu=v3 -I../../internal/bpf/include" split split.c
