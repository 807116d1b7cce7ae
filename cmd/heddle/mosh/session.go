package mosh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/term"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/internal/runner"
	"heddle/internal/text"
	"heddle/path"
	"heddle/split"
)

// run runs a session, from the checks of this machine to the end of mosh-client.
func (m *session) run(ctx context.Context, terminal [3]*os.File, talk io.Writer) error {
	o, err := m.Options()
	if err != nil {
		return cli.Usage(err)
	}
	if err := Check(ctx); err != nil {
		return err
	}
	if err := enoughReady(o); err != nil {
		return err
	}
	held := &heldLog{}
	log, closeLog, err := m.openLog(held)
	if err != nil {
		return err
	}
	defer closeLog()
	return runner.Run(ctx, m.runner(o), func(ctx context.Context, r *runner.Runner) error {
		m.Name = r.Name
		o.Session, o.Tap, o.Log = m.Name, r.Tap, log
		// mosh-client gets the terminal's SIGHUP too, and then says goodbye to the server, which needs the relay.
		ctx, stopSignals := signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stopSignals()
		defer held.print(talk)
		return m.session(ctx, o, r, terminal, talk)
	})
}

// session starts mosh-server, a relay to it, and mosh-client, and ends with mosh-client.
func (m *session) session(ctx context.Context, o split.Options, r *runner.Runner, terminal [3]*os.File, talk io.Writer) error {
	m.localize(ctx)
	started, err := m.server.Start(ctx, talk)
	if err != nil {
		return err
	}
	o.To = started.Addr.String()
	relay, err := split.NewRelay(ctx, split.RelayOptions{Options: o, Listen: netip.AddrPortFrom(loopback, 0)})
	if err != nil {
		return err
	}
	r.Show(func() control.Status { return control.Status{Sessions: relay.Status()} })
	// The relay outlasts ctx, since mosh-client's goodbye has to be sent.
	relaying, stop := context.WithCancel(context.WithoutCancel(ctx))
	relayed := make(chan error, 1)
	go func() { relayed <- relay.Run(relaying) }()
	m.claim(o, started.Addr, talk)
	before, _ := term.GetState(int(terminal[0].Fd()))
	status, err := Client{Addr: relay.Addr(), Key: started.Key, Predict: m.Predict, Terminal: terminal}.Run(ctx)
	if before != nil {
		_ = term.Restore(int(terminal[0].Fd()), before) // if mosh-client could not do it
	}
	last := relay.Status()
	stop()
	if err := errors.Join(err, <-relayed); err != nil {
		return err
	}
	if err := unheard(last); err != nil {
		return err
	}
	if status != 0 {
		return cli.ExitStatus(status)
	}
	return nil
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// claim prints what is split and what is not.
func (m *session) claim(o split.Options, to netip.AddrPort, talk io.Writer) {
	observers := map[string]bool{}
	if ways, err := o.Paths(); err == nil {
		for _, s := range o.Via {
			observers[ways[s.Name].Describe().Observer] = true
		}
	}
	fmt.Fprintf(talk, "%s: mosh-server listens on %s, over %s\nclaim: %s\n", m.Name, to, text.Count(len(o.Via), "path"), split.Claim(len(observers)))
	fmt.Fprintf(talk, "claim: ssh went by %s, whose network saw an SSH connection to the same server\n", m.SSHVia)
}

// enoughReady fails if too few paths can send now: ssh would start a server that nobody can reach.
func enoughReady(o split.Options) error {
	ways, err := o.Paths()
	if err != nil {
		return err
	}
	need := o.MinPaths
	if need == 0 {
		need = min(2, len(o.Via))
	}
	if o.Degrade {
		need = 1
	}
	ready := 0
	var why []string
	for _, s := range o.Via {
		info := ways[s.Name].Describe()
		if info.Ready {
			ready++
		} else {
			why = append(why, s.Name+": "+info.Why)
		}
	}
	if ready >= need {
		return nil
	}
	return &path.Error{What: "mosh", Why: fmt.Sprintf("%d of %d paths can send now, and it takes %d (%s)", ready, len(o.Via), need, strings.Join(why, "; ")),
		Hint: "bring them up, or ask for fewer with --min-paths or --degrade"}
}

// unheard returns an error if nothing came back over UDP: mosh-client itself can only name the relay's port.
func unheard(sessions []split.Status) error {
	if len(sessions) == 0 {
		return nil
	}
	for _, s := range sessions {
		for _, p := range s.Paths {
			if p.Down.Packets > 0 {
				return nil
			}
		}
	}
	s := sessions[len(sessions)-1]
	if s.State != "running" {
		return &path.Error{What: "mosh", Why: s.Why, Hint: "heddle doctor looks at this machine's paths"}
	}
	return &path.Error{What: "mosh", Why: "nothing came back from " + s.Server + " by any path",
		Hint: "does a firewall before the server let UDP through, ports 60000 to 61000? mosh-server there ends by itself after a minute"}
}

// unfitForName matches what a session's name must not contain.
var unfitForName = regexp.MustCompile(`[^a-zA-Z0-9_=+.-]+`)

// runner sets the session's name: the given one, or the host's, with a number if that is taken.
func (m *session) runner(o split.Options) runner.Options {
	as := runner.Splitting(m.Name, m.Capture, o)
	if m.Name == "" {
		host := m.server.Host[strings.LastIndexByte(m.server.Host, '@')+1:]
		name := "mosh-" + unfitForName.ReplaceAllString(host, "-")
		as.Name, as.Taken = name[:min(len(name), 60)], runner.AddNumber
	}
	return as
}

// openLog opens the log: a file, or lines held until the terminal is free again.
func (m *session) openLog(held *heldLog) (log *slog.Logger, closeLog func(), err error) {
	if m.Log == "" {
		return slog.New(slog.NewTextHandler(held, &slog.HandlerOptions{Level: slog.LevelWarn})), func() {}, nil
	}
	f, err := os.OpenFile(m.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, cli.Usage(&path.Error{What: "--log " + m.Log, Err: err, Hint: "name a file that you can write to"})
	}
	return slog.New(slog.NewTextHandler(f, nil)), func() { f.Close() }, nil
}

// heldLog keeps the first lines written to it, since mosh-client owns the terminal while it runs.
type heldLog struct {
	mu    sync.Mutex
	lines []string
	more  int
}

// mostHeld bounds the kept lines.
const mostHeld = 20

func (h *heldLog) Write(line []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.lines) < mostHeld {
		h.lines = append(h.lines, string(line))
	} else {
		h.more++
	}
	return len(line), nil
}

func (h *heldLog) print(to io.Writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.lines {
		io.WriteString(to, l)
	}
	if h.more > 0 {
		fmt.Fprintf(to, "and %s more; --log FILE keeps them all\n", text.Count(h.more, "line"))
	}
}
