package send_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/clitest"
	"heddle/internal/polltest"
	"heddle/internal/tcptest"
	"heddle/stripe/transfer"
)

// asHeddle makes this program one whose end takes its sockets with it.
const asHeddle = "HEDDLE_TEST_SEND"

func TestMain(m *testing.M) {
	if os.Getenv(asHeddle) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(heddle.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// narrows carries connections to an address, of each the first bytes, which it tells to full, and then nothing more until open is
// closed. It never passes on that the sender is gone.
func narrows(t *testing.T, to string, full chan<- struct{}, open <-chan struct{}) string {
	const first = 1 << 20
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	return tcptest.Serve(t, func(c *net.TCPConn) {
		far, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer far.Close()
		var ways sync.WaitGroup
		ways.Go(func() { _, _ = io.Copy(c, far) })
		_, _ = io.CopyN(far, c, first)
		full <- struct{}{}
		select {
		case <-open:
			_, _ = io.Copy(far, c)
		case <-done:
		}
		<-done
		far.Close()
		c.Close()
		ways.Wait()
	}).String()
}

// A send that was interrupted, or killed, goes on at once where it broke off.
func TestInterruptedSendGoesOnAtOnce(t *testing.T) {
	data := make([]byte, 32<<20)
	_, _ = rand.Read(data)
	for name, c := range map[string]struct {
		signal os.Signal
		said   string // by the receiver
	}{
		"interrupted": {os.Interrupt, "broke off"},
		"killed":      {syscall.SIGKILL, "a newer transfer of the same sender"},
	} {
		t.Run(name, func(t *testing.T) {
			clitest.ShortRunDir(t)
			here, there := heddle.NewDevice(t), heddle.NewDevice(t)
			into, file := t.TempDir(), filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			received, at := there.Start(`files: listening on (\S+) for 1 key: files into`, "recv", "--into", into, "--listen", "127.0.0.1:0", "--allow", here.Key)
			full, open := make(chan struct{}, 2), make(chan struct{})
			args := func(to string) []string {
				return append([]string{"send", file, "files", "--to", to, "--key", there.Key, "--identity", here.File, "--tries", "1", "--json"}, clitest.TwoPaths...)
			}
			first := exec.CommandContext(t.Context(), os.Args[0], args(narrows(t, at[1], full, open))...)
			first.Env = append(os.Environ(), asHeddle+"=1")
			if err := first.Start(); err != nil {
				t.Fatal(err)
			}
			<-full
			<-full
			polltest.Await(t, "a part arrives", func() bool {
				info, err := os.Stat(filepath.Join(into, "file.part"))
				return err == nil && info.Size() > 0
			})
			if err := first.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- first.Wait() }()
			if c.signal == os.Interrupt {
				select {
				case <-ended:
					t.Fatal("it ended before its goodbye could leave")
				case <-time.After(300 * time.Millisecond): // the longer, the surer is it seen
				}
				close(open)
			}
			if err := <-ended; err == nil {
				t.Fatal("it was not interrupted")
			}
			broke := func() bool { return strings.Contains(received.String(), "broke off") }
			if c.signal == os.Interrupt {
				polltest.Await(t, "the receiver knows", broke)
			}
			var out, talk clitest.Spoken
			if code := heddle.Run(t.Context(), args(at[1]), strings.NewReader(""), &out, &talk); code != cli.ExitOK {
				t.Errorf("exit code %d\n%s", code, &talk)
			}
			var answer transfer.Report
			if err := json.Unmarshal([]byte(out.String()), &answer); err != nil || len(answer.Files) != 1 || answer.Files[0].State != transfer.StateResumed {
				t.Errorf("%v, %+v", err, answer)
			}
			if got, err := os.ReadFile(filepath.Join(into, "file")); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes arrived of %d, %v", len(got), len(data), err)
			}
			polltest.Until(t, func() error {
				if !broke() || !strings.Contains(received.String(), c.said) {
					return errors.New("the receiver says\n" + received.String())
				}
				return nil
			})
		})
	}
}
