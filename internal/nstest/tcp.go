package nstest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
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
