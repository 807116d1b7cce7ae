// Package keeper holds sockets open in a process of its own for a while after this process ended, even if it was killed. The
// kernel then answers nothing that still arrives for them: such an answer is bound to no device and would leave by the main
// route. It needs no rights.
//
// The program must call [MaybeKeep] first in main. [Start] starts the program again as the keeper, which gets a duplicate of
// each socket, and ends when the last one is quiet.
package keeper

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Keeper is the keeper of this process. A nil Keeper holds nothing.
type Keeper struct {
	socket int

	mu   sync.Mutex
	last ID
}

// ID names a held socket; 0 is none.
type ID uint64

// processName is the argv[0] that makes [MaybeKeep] act.
const processName = "heddle-keeper"

// Start starts the keeper of this process.
func Start() (*Keeper, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	theirs := os.NewFile(uintptr(ends[1]), processName)
	defer theirs.Close()
	// It has no terminal, no pipe and no directory of this process, so that nobody waits for it.
	c := &exec.Cmd{Path: "/proc/self/exe", Args: []string{processName}, Env: []string{"GOMAXPROCS=1"}, Dir: "/", ExtraFiles: []*os.File{theirs},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	if err := c.Start(); err != nil {
		unix.Close(ends[0])
		return nil, err
	}
	go func() { _ = c.Wait() }()
	return &Keeper{socket: ends[0]}, nil
}

// Hold gives the keeper a duplicate of a socket. Closing the socket then sends no FIN before Release.
func (k *Keeper) Hold(fd int, stream bool) (ID, error) {
	if k == nil {
		return 0, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last++
	what := holdDatagrams
	if stream {
		what = holdStream
	}
	return k.last, k.tell(what, k.last, unix.UnixRights(fd))
}

// Release lets the keeper close its duplicate: at once, or when nothing arrives any more.
func (k *Keeper) Release(id ID, whenQuiet bool) error {
	what := closeNow
	if whenQuiet {
		what = closeWhenQuiet
	}
	return k.tell(what, id, nil)
}

// order is the first byte of a message. The ID follows.
type order byte

const (
	holdDatagrams order = iota // with the socket
	holdStream
	closeNow
	closeWhenQuiet
)

const messageBytes = 9

// tell does not wait for a keeper that is stuck.
func (k *Keeper) tell(what order, id ID, rights []byte) error {
	message := binary.BigEndian.AppendUint64([]byte{byte(what)}, uint64(id))
	return unix.Sendmsg(k.socket, message, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}
