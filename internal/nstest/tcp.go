package nstest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TCPState returns the state of the TCP socket on a local port of the calling thread's namespace, such as unix.BPF_TCP_LISTEN, or 0 if
// there is none. A connection that no process has open any more counts too.
func TCPState(port uint16) (byte, error) {
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile("/proc/thread-self/net/" + table)
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line) // number, local address and port, remote ones, state, ...
			if len(f) < 4 || !strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				continue
			}
			state, err := strconv.ParseUint(f[3], 16, 8)
			return byte(state), err
		}
	}
	return 0, nil
}

// Unacknowledged is how many segments of a TCP connection wait for an acknowledgement.
func Unacknowledged(t testing.TB, c net.Conn) (n uint32) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info *unix.TCPInfo
	controlErr := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err := errors.Join(err, controlErr); err != nil {
		t.Fatal(err)
	}
	return info.Unacked
}
