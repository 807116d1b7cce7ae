package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// [MaybeEnter] turns this program into the engine under these two names. The first asks the kernel for prompt wake-ups
// and starts the second, so that all its threads inherit them: one prompt thread would wait for locks that slower
// threads of the Go runtime hold.
const (
	engineName  = "heddle-lab-engine"
	hurriedName = "heddle-lab-engine-running"
)

// engine is the process that runs a world's emulated links. It ends with the owner, when its standard input closes.
type engine struct {
	mu      sync.Mutex
	cmd     *exec.Cmd
	orders  io.Closer
	encoder *json.Encoder
	decoder *json.Decoder
}

// setup is the first message to the engine. The devices of link i are file descriptors 3+2i and 4+2i.
type setup struct {
	Links []LinkSpec
	Seed  uint64
}

// order is every later message: it sets one link, or only asks for the status. Each is answered.
type order struct {
	Link   int // index in setup, or -1
	AB, BA Shape
	Cut    bool
	Reset  bool // the lateness of all links
}

// answer is the status of all links.
type answer struct {
	Error string
	Links []LinkStatus
	All   Lateness
}

// startEngine starts the process and takes over the devices.
func startEngine(links []LinkSpec, devices []*os.File, seed uint64) (*engine, error) {
	defer func() {
		for _, f := range devices {
			f.Close()
		}
	}()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{engineName}
	cmd.Dir = "/"
	cmd.ExtraFiles = devices
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // keep the terminal's SIGINT for the owner
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the emulator: %w", err)
	}
	e := &engine{cmd: cmd, orders: in, encoder: json.NewEncoder(in), decoder: json.NewDecoder(out)}
	if _, err := e.ask(setup{links, seed}); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

// ask sends a message and returns the answer.
func (e *engine) ask(message any) (answer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var a answer
	if err := e.encoder.Encode(message); err != nil {
		return a, fmt.Errorf("the emulator has ended: %w", err)
	}
	if err := e.decoder.Decode(&a); err != nil {
		return a, fmt.Errorf("the emulator has ended: %w", err)
	}
	if a.Error != "" {
		return a, errors.New("emulator: " + a.Error)
	}
	return a, nil
}

// close ends the process and its devices.
func (e *engine) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.orders.Close(); err != nil {
		return err
	}
	return e.cmd.Wait()
}

// hurry asks for prompt wake-ups and starts the engine. Some machines refuse some steps; the cost shows in the lateness.
func hurry() error {
	runtime.LockOSThread()
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	if unix.SchedSetAttr(0, &attr, 0) != nil {
		unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	}
	return unix.Exec("/proc/self/exe", []string{hurriedName}, os.Environ())
}

// runEngine is the engine: it reads messages from in and writes answers to out until in ends.
func runEngine(in io.Reader, out io.Writer) error {
	// The engine allocates almost nothing, so collection would only make it late. The memory limit is a safeguard.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(256 << 20)
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	var s setup
	if err := decoder.Decode(&s); err != nil {
		return err
	}
	links := make([]*emulator, len(s.Links))
	for i, spec := range s.Links {
		var err error
		if links[i], err = newEmulator(3+2*i, 4+2*i, spec, s.Seed, uint64(i)); err != nil {
			return encoder.Encode(answer{Error: err.Error()})
		}
	}
	for {
		var a answer
		var all lateness
		for i, l := range links {
			a.Links = append(a.Links, l.status(s.Links[i].Name, &all))
		}
		a.All = all.summary()
		if err := encoder.Encode(a); err != nil {
			return err
		}
		var o order
		if err := decoder.Decode(&o); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		o.apply(links)
	}
}

func (o order) apply(links []*emulator) {
	if o.Reset {
		for _, l := range links {
			l.resetLateness()
		}
	}
	if o.Link >= 0 && o.Link < len(links) {
		links[o.Link].set(o.AB, o.BA, o.Cut)
	}
}
