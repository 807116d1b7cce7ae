package send_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/clitest"
	"heddle/identity"
	"heddle/internal/tcptest"
	"heddle/internal/tlsbatch"
	"heddle/overlay/client"
)

// evilNode is a node that any client may use, and that carries what goes to the destination as bend likes. It gives the
// pass for it.
func evilNode(t *testing.T, name string, bend func(to io.Writer, from io.Reader)) client.Pass {
	t.Helper()
	id, err := identity.New()
	if err != nil {
		t.Fatal(err)
	}
	config, err := id.Server(func(identity.Key) error { return nil }, client.Protocol)
	if err != nil {
		t.Fatal(err)
	}
	at := tcptest.Serve(t, func(c *net.TCPConn) { carry(tlsbatch.Server(c, config), bend) }).String()
	return client.Pass{Name: name, Key: id.Key(), Addresses: []string{at}}
}

func carry(client net.Conn, bend func(to io.Writer, from io.Reader)) {
	in := bufio.NewReader(client)
	request, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	target, err := net.Dial("tcp", request.Host)
	if err != nil {
		return
	}
	defer target.Close()
	_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
	go func() {
		_, _ = io.Copy(client, target)
		client.Close()
	}()
	bend(target, in)
}

// Of five nodes one changes bytes, one ends in the middle of a segment, and one swallows all, each after a while. With 2of5
// the file arrives as it was, and each of the three is named with what it did.
func TestNodesThatMisbehaveAreNamed(t *testing.T) {
	clitest.ShortRunDir(t)
	home := t.TempDir()
	t.Setenv("HEDDLE_HOME", home)
	const honest = 100_000 // bytes before it begins
	var logged clitest.Spoken
	logTo(t, &logged)
	named, allNamed := make(chan struct{}), false
	slow := func(to io.Writer, from io.Reader) { // so that there is something to carry until all are named
		buffer := make([]byte, 16<<10)
		for {
			n, err := from.Read(buffer)
			if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
				return
			}
			select {
			case <-named:
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	args := []string{}
	for name, bend := range map[string]func(io.Writer, io.Reader){
		"good": slow, "fine": slow,
		"liar": func(to io.Writer, from io.Reader) {
			_, _ = io.CopyN(to, from, honest)
			wrong := make([]byte, 1000)
			_, _ = io.ReadFull(from, wrong)
			wrong[500] ^= 1
			_, _ = to.Write(wrong)
			_, _ = io.Copy(to, from)
		},
		"half": func(to io.Writer, from io.Reader) { _, _ = io.CopyN(to, from, honest) },
		"mute": func(to io.Writer, from io.Reader) {
			_, _ = io.CopyN(to, from, honest)
			_, _ = io.Copy(io.Discard, from)
		},
	} {
		if _, err := evilNode(t, name, bend).Save(filepath.Join(home, "nodes")); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--via", name+"=node:"+name)
	}
	here, there := heddle.NewDevice(t), heddle.NewDevice(t)
	into := t.TempDir()
	_, at := there.Start(`files: listening on (\S+) for 1 key`, "recv", "--into", into, "--listen", "127.0.0.1:0", "--allow", here.Key)
	data := make([]byte, 8<<20)
	_, _ = rand.Read(data)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	var said clitest.Spoken
	done := make(chan int, 1)
	go func() {
		done <- heddle.Run(t.Context(), append([]string{"send", file, "files", "--to", at[1], "--key", there.Key, "--identity", here.File, "--shares", "2of5"}, args...), strings.NewReader(""), &said, &said)
	}()
	missing := func() (all []string) {
		for _, want := range []string{`path=liar why="[^"]*(changed on the way|bad record MAC)`, `path=half why="[^"]*(ended|reset) on the way`, `why="[^"]*(cut within a segment|ended on the way)`, `path=mute why=`, `why="nothing came back for`} {
			if !regexp.MustCompile(want).MatchString(logged.String()) {
				all = append(all, want)
			}
		}
		return all
	}
	code := -1
	for code < 0 {
		select {
		case code = <-done:
		case <-time.After(20 * time.Millisecond):
			if !allNamed && len(missing()) == 0 {
				close(named)
				allNamed = true
			}
		}
	}
	if code != cli.ExitOK || len(missing()) > 0 {
		t.Errorf("exit code %d, not said: %q\n%s\n%s", code, missing(), &said, &logged)
	}
	if got, err := os.ReadFile(filepath.Join(into, "file")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes arrived of %d, %v", len(got), len(data), err)
	}
	if regexp.MustCompile(`path=(good|fine) why=`).MatchString(logged.String()) {
		t.Errorf("a node that did nothing is named:\n%s", &logged)
	}
}

// logTo has what is logged until the end of the test written to w.
func logTo(t *testing.T, w io.Writer) {
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(w, nil)))
	t.Cleanup(func() {
		slog.SetDefault(old)
		log.SetOutput(os.Stderr)
		log.SetFlags(log.LstdFlags)
	})
}
