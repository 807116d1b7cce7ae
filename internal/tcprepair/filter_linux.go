package tcprepair

import (
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"heddle/internal/netutil"
)

// refusing is the filter of [netutil.RefuseAll] as a program that all sockets share, or nil if this process may load none (CAP_BPF). The
// kernel compiles a filter of a socket's own each time, and frees it later.
var refusing = sync.OnceValue(func() *ebpf.Program {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "refuse", Type: ebpf.SocketFilter, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		return nil
	}
	return p
})

// refuse gives a socket a filter that keeps no byte of a packet.
func refuse(fd int) error {
	p := refusing()
	if p == nil {
		return netutil.RefuseAll(fd)
	}
	return os.NewSyscallError("SO_ATTACH_BPF", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, p.FD()))
}
