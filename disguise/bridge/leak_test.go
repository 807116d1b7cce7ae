package bridge

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"testing"

	"heddle/internal/polltest"
	"heddle/internal/tcptest"
)

// Links and connections that come and go leave nothing behind: no goroutine, and no open file.
func TestNothingIsLeft(t *testing.T) {
	files := func() int {
		list, _ := os.ReadDir("/proc/self/fd") // none on other systems
		return len(list)
	}
	s := start(t, func(o *Options) { o.Target = to(tcptest.Serve(t, tcptest.Echo)) })
	probe, err := net.Dial("tcp", s.at.String())
	if err != nil {
		t.Fatal(err)
	}
	_ = probe.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, probe) // now the bridge accepts, in a goroutine of its own
	probe.Close()
	goroutines, open := runtime.NumGoroutine(), files()
	for range 10 {
		c := opened(t, s.options())
		exchange(t, c, 50_000)
		c.Close()
	}
	polltest.Until(t, func() error {
		if n, f := runtime.NumGoroutine(), files(); n > goroutines || f > open {
			return fmt.Errorf("%d goroutines and %d files, there were %d and %d", n, f, goroutines, open)
		}
		return nil
	})
}
