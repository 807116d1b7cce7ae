package bpfswitch

//go:generate go tool bpf2go -cc clang -strip llvm-strip -tags linux -type key -type entry -type direct -target bpfel,bpfeb -cflags "-O2 -Wall -Werror -mcpu=v3 -I../../../internal/bpf/include" lead switch.c
