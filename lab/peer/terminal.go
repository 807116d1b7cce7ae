package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
	"golang.org/x/sys/unix"

	"heddle/internal/program"
	"heddle/lab"
)

// Terminal is a program inside a host with a terminal of its own, and the contents of its screen.
type Terminal struct {
	*Process
	file   *os.File
	screen vt10x.Terminal
	drawn  chan struct{} // has a value after a change

	mu   sync.Mutex
	top  string // the first row
	tops int    // number of its changes
}

// StartTerminal starts a program inside a host, in a new session with a terminal of this size and a UTF-8 locale.
func StartTerminal(ctx context.Context, host *lab.Host, cols, rows int, name string, args ...string) (*Terminal, error) {
	if err := installed(name); err != nil {
		return nil, err
	}
	t := &Terminal{screen: vt10x.New(vt10x.WithSize(cols, rows)), drawn: make(chan struct{}, 1)}
	var err error
	t.Process, err = program.StartBy(ctx, host.Command, func(c *exec.Cmd) (func() error, error) {
		c.Env = append(os.Environ(), "TERM=xterm-256color", "LC_ALL=C.UTF-8")
		return t.start(c, &pty.Winsize{Cols: uint16(cols), Rows: uint16(rows)})
	}, name+" on "+host.Name(), name, args...)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Terminal) start(c *exec.Cmd, size *pty.Winsize) (wait func() error, err error) {
	log := c.Stdout
	c.Stdout, c.Stderr = nil, nil // pty gives it the terminal
	file, err := pty.StartWithSize(c, size)
	if err != nil {
		return nil, err
	}
	if t.file, err = pollable(file); err != nil {
		return nil, errors.Join(err, c.Cancel(), c.Wait())
	}
	read := make(chan struct{})
	go func() {
		t.read(log)
		close(read)
	}()
	return func() error {
		err := c.Wait()
		<-read // the screen shows its last output
		t.file.Close()
		return err
	}, nil
}

// pollable reopens a file in non-blocking mode, so that Close ends a waiting Read: pty opens it blocking.
func pollable(blocking *os.File) (*os.File, error) {
	defer blocking.Close()
	fd, err := unix.FcntlInt(blocking.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), blocking.Name()), nil
}

// read draws the program's output, and logs it, until the program ends.
func (t *Terminal) read(log io.Writer) {
	buffer, held := make([]byte, 64<<10), 0
	for {
		n, err := t.file.Read(buffer[held:])
		whole := wholeRunes(buffer[:held+n])
		log.Write(buffer[held : held+n])
		t.screen.Write(buffer[:whole])
		held = copy(buffer, buffer[whole:held+n])
		t.mu.Lock()
		if top := line(t.screen, 0); top != t.top {
			t.top = top
			t.tops++
		}
		t.mu.Unlock()
		select {
		case t.drawn <- struct{}{}:
		default:
		}
		if err != nil { // EIO if the other side has no open descriptor
			return
		}
	}
}

// wholeRunes returns the length of the complete characters in b: the emulator does not accept partial ones.
func wholeRunes(b []byte) int {
	for back := 1; back < utf8.UTFMax && back <= len(b); back++ {
		if at := len(b) - back; utf8.RuneStart(b[at]) {
			if !utf8.FullRune(b[at:]) {
				return at
			}
			break
		}
	}
	return len(b)
}

// line returns one row of the screen without trailing blanks.
func line(screen vt10x.Terminal, row int) string {
	cols, _ := screen.Size()
	screen.Lock()
	defer screen.Unlock()
	text := make([]rune, cols)
	for x := range text {
		if text[x] = screen.Cell(x, row).Char; text[x] == 0 {
			text[x] = ' '
		}
	}
	return strings.TrimRight(string(text), " ")
}

// Screen returns the rows of the screen without trailing blanks.
func (t *Terminal) Screen() []string {
	_, rows := t.screen.Size()
	lines := make([]string, rows)
	for y := range lines {
		lines[y] = line(t.screen, y)
	}
	return lines
}

// Type types text, as from a keyboard.
func (t *Terminal) Type(text string) error {
	_, err := t.file.WriteString(text)
	return err
}

// Hang closes the terminal, like closing its window.
func (t *Terminal) Hang() error { return t.file.Close() }

// Updates is how often the first row of the screen has changed.
func (t *Terminal) Updates() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tops
}

// Await waits until wanted accepts the screen. It fails after limit, or if the program ends.
func (t *Terminal) Await(ctx context.Context, limit time.Duration, wanted func(screen []string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		screen := t.Screen()
		if wanted(screen) {
			return nil
		}
		select {
		case <-t.drawn:
		case <-t.Done():
			if wanted(t.Screen()) {
				return nil
			}
			return fmt.Errorf("%s ended: %v; its screen:\n%s", t.Name(), t.Err(), strings.Join(t.Screen(), "\n"))
		case <-ctx.Done():
			return fmt.Errorf("%s: the screen does not become what is wanted: %w; it is:\n%s",
				t.Name(), ctx.Err(), strings.Join(screen, "\n"))
		}
	}
}

// Wait waits for the program and returns its exit status.
func (t *Terminal) Wait(ctx context.Context) (status int, err error) {
	select {
	case <-t.Done():
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if exit, ok := errors.AsType[*exec.ExitError](t.Err()); ok {
		return exit.ExitCode(), nil
	}
	return 0, t.Err()
}
