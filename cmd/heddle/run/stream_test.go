package run

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"heddle/cmd/heddle/internal/clitest"
	"heddle/cmd/heddle/stream"
)

// heddle has the commands that these tests need.
var heddle = clitest.Program{Command, stream.Command}

// One file has both sides of a stream. The side that dials tries until the other one listens.
func TestStreamOfAFile(t *testing.T) {
	clitest.ShortRunDir(t)
	socket := filepath.Join(os.Getenv("HEDDLE_RUN_DIR"), "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	d := heddle.NewDevice(t)
	at := ownPort(t)
	file := filepath.Join(t.TempDir(), "heddle.toml")
	text := fmt.Sprintf(`identity = %q
via = ["a=src:127.0.0.1", "b=if:lo"]
[[serve]]
name = "echo"
to = %q
listen = %q
allow = [%q]
[[dial]]
name = "echo"
listen = "127.0.0.1:0"
to = %q
key = %q
shares = "xor:2"
[[split]]
listen = "127.0.0.1:0"
to = "127.0.0.1:9"
`, d.File, clitest.EchoServer(t), at, d.Key, at, d.Key)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	said, up := heddle.Start(t, `dial-echo: echo is up: listening on (\S+), to \S+ over 2 paths, xor:2 shares`, "run", file)
	if got := clitest.Echoed(t, up[1], "there and back"); got != "there and back" {
		t.Errorf("%q came back\n%s", got, said)
	}
	// The relay and the one that serves are ready once they listen, and the one that dials once it had a session.
	heard := make([]byte, 256)
	_ = systemd.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := systemd.Read(heard); err != nil || !strings.Contains(string(heard[:n]), "READY=1") {
		t.Errorf("systemd heard %q, %v", heard[:n], err)
	}
	t.Setenv("NOTIFY_SOCKET", "")
	// One that is dialled by hand, with a flag before its key.
	clitest.ShortRunDir(t)
	_, up = heddle.Start(t, `echo is up: listening on (\S+), to \S+ over 2 paths, strict`, "stream", "dial", "--config", dialTable(t, text), "--shares", "none")
	if got := clitest.Echoed(t, up[1], "by flags"); got != "by flags" {
		t.Errorf("%q came back", got)
	}
}

// ownPort gives an address to listen at later. Its port is none of those that the kernel hands out by itself.
func ownPort(t *testing.T) string {
	t.Helper()
	for range 100 {
		at := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		if l, err := net.Listen("tcp", at); err == nil {
			l.Close()
			return at
		}
	}
	t.Fatal("no port is free")
	return ""
}

// dialTable is a file with the [[dial]] table of another alone.
func dialTable(t *testing.T, text string) string {
	t.Helper()
	_, dial, _ := strings.Cut(text, "[[dial]]")
	dial, _, _ = strings.Cut(dial, "[[split]]")
	head, _, _ := strings.Cut(text, "[[serve]]")
	file := filepath.Join(t.TempDir(), "heddle.toml")
	if err := os.WriteFile(file, []byte(head+"[[dial]]"+dial), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
