package v6switch

//go:generate go tool bpf2go -cc clang -strip llvm-strip -tags linux -type counts -target bpfel,bpfeb -cflags "-O2 -Wall -Werror -mcpu=v3 -I../../../internal/bpf/include" lead switch.c
