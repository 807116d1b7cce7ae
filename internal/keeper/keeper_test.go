package keeper

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/nstest"
	"heddle/internal/polltest"
)

func TestMain(m *testing.M) {
	MaybeKeep()
	if os.Getenv(orphanVariable) != "" {
		os.Exit(leaveKeeper())
	}
	os.Exit(m.Run())
}

// orphanVariable makes this program a process that ends and leaves its keeper with one socket.
const orphanVariable = "HEDDLE_KEEPER_ORPHAN"

func leaveKeeper() int {
	k, err := Start()
	if err != nil {
		return 1
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		_, err = k.Hold(fd, false)
	}
	if err != nil {
		return 1
	}
	return 0
}

// A keeper is listed once its process ended, and only in its own network namespace.
func TestLingering(t *testing.T) {
	in := nstest.New(t)
	in.Enter(t)
	start(t)
	if all := All(); len(all) != 0 {
		t.Errorf("the keeper of this process counts: %v", all)
	}
	child := exec.Command("/proc/self/exe")
	child.Env = append(os.Environ(), orphanVariable+"=1")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	polltest.Await(t, "a keeper with one socket is listed", func() bool { return len(All()) == 1 && All()[0].Sockets == 1 })
	pid := All()[0].PID
	nstest.New(t).Enter(t)
	if all := All(); len(all) != 0 {
		t.Errorf("from another namespace are listed %v", all)
	}
	in.Enter(t)
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	polltest.Await(t, "the keeper ends", func() bool { return len(All()) == 0 })
}

func start(t *testing.T) *Keeper {
	t.Helper()
	k, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(k.socket) })
	return k
}

// held gives a socket to the keeper.
func held(t *testing.T, k *Keeper, c syscall.Conn, stream bool) (id ID) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err == nil {
		controlErr := raw.Control(func(fd uintptr) { id, err = k.Hold(int(fd), stream) })
		err = errors.Join(err, controlErr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func udp(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.47.11:0"))) // where nobody else takes the port
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// open reports whether some process has a socket at the address.
func open(at net.Addr) bool {
	c, err := net.ListenUDP("udp4", at.(*net.UDPAddr))
	if err == nil {
		c.Close()
	}
	return err != nil
}

func TestKeeperHoldsASocketUntilRelease(t *testing.T) {
	k, c, other := start(t), udp(t), udp(t)
	id := held(t, k, c, false)
	at := c.LocalAddr()
	c.Close()
	if !open(at) {
		t.Fatal("the socket is gone")
	}
	if err := k.Release(id, true); err != nil { // it is obeyed before what follows
		t.Fatal(err)
	}
	second := held(t, k, other, false)
	other.Close()
	if err := k.Release(second, false); err != nil {
		t.Fatal(err)
	}
	polltest.Await(t, "the second socket is closed", func() bool { return !open(other.LocalAddr()) })
	if !open(at) {
		t.Error("it does not wait for silence")
	}
}

func TestPeerReadsTheEndOfAStreamThatIsHeld(t *testing.T) {
	k := start(t)
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c, err := net.Dial("tcp4", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	id := held(t, k, c.(*net.TCPConn), true)
	c.Close()
	if err := k.Release(id, true); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(peer); err != nil || len(rest) != 0 {
		t.Errorf("%q, %v", rest, err)
	}
}

// When the other process ends, the keeper keeps what is left until it is quiet, and then ends.
func TestKeeperEnds(t *testing.T) {
	c := udp(t)
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	fd := -1
	raw.Control(func(open uintptr) { fd, err = unix.Dup(int(open)) })
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	messages, terminated, done := make(chan message), make(chan os.Signal), make(chan struct{})
	p := process{held: map[ID]*socket{}, quiet: time.Hour, soon: time.Hour, most: time.Hour}
	go func() { p.run(messages, terminated); close(done) }()
	messages <- message{holdDatagrams, 1, fd}
	began := time.Now()
	close(messages)
	terminated <- unix.SIGTERM
	if <-done; time.Since(began) < mostSoon { // a slow machine takes longer
		t.Error("it does not wait for silence")
	}
	if open(c.LocalAddr()) {
		t.Error("the socket stays open")
	}
}
