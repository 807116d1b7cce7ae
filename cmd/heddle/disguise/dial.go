package disguise

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/internal/runner"
	"heddle/config"
	"heddle/disguise/client"
	"heddle/internal/connlimit"
	"heddle/internal/netutil"
	"heddle/internal/text"
	"heddle/path"
	"heddle/proxy/socks"
)

func newDialCommand() *cobra.Command {
	d := struct {
		config.DisguiseDial
		DryRun bool `flag:"dry-run" help:"say what would be dialled, and send nothing"`
	}{DisguiseDial: config.DefaultDisguiseDial()}
	return bind.Flags(&cobra.Command{
		Use:   "dial FILE --listen HOST:PORT",
		Short: "Use a bridge: a proxy for programs of this machine",
		Long: `Dial opens a link to a bridge, and is a SOCKS5 and HTTP CONNECT proxy for
programs until it is interrupted. FILE is a bridge.toml with the bridge line.
Its other keys have the names of the flags. A flag overrides its key.

The bridge looks up the names that programs ask for. With --to each connection
of a program goes to that destination; with --to bridge to the bridge's own
target, each in a link of its own.

A link has several connections, which leave by the paths of --via. The schedule
draws the path of each one, and none leaves another way. With fewer working
paths than --min-paths nothing is sent. Without --via they follow this machine's
routes.

The networks of the paths see connections to the bridge, and how much they
carry. Dial prints what the cover hides and what it does not. The bridge sees
this device's addresses, where programs connect to, and what is not encrypted
inside.`,
		Example: `  heddle disguise dial bridge.toml --listen 127.0.0.1:1080
  heddle disguise dial bridge.toml --listen 127.0.0.1:2222 --to bridge
  heddle disguise dial bridge.toml --listen 127.0.0.1:1080 --via home=if:eth0 --via lte=if:wwan0 --schedule weighted`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.FileUnderFlags(cmd, args, config.LoadDisguiseDial, &d.DisguiseDial); err != nil {
				return err
			}
			if err := cli.UsageBy(cmd, d.Check()); err != nil {
				return err
			}
			return runDial(cmd, d.DisguiseDial, d.DryRun)
		},
	}, &d)
}

// dialling is one run of `heddle disguise dial`.
type dialling struct {
	config.DisguiseDial
	options client.Options
	many    *client.Many // nil if each connection has a link of its own
	listen  string
	since   time.Time

	mu    sync.Mutex
	links map[*client.Session]bool
}

func runDial(cmd *cobra.Command, d config.DisguiseDial, dryRun bool) error {
	out, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	o, err := d.Options()
	if err != nil {
		return err
	}
	for _, claim := range d.Claims(o.Line) {
		fmt.Fprintf(out, "the cover %s\n", claim)
	}
	if dryRun {
		_, err := fmt.Fprintf(out, "would keep %s to %v open, over %s, for programs on %s\n", text.Count(o.Connections, "connection"), o.Line.Address, over(o.Paths), d.Listen)
		return err
	}
	o.Log = slog.New(slog.NewTextHandler(stderr, nil))
	accounts, err := d.SocksUsers.Load()
	if err != nil {
		return err
	}
	l, err := runner.Listen(cmd.Context(), "listen", d.Listen, false)
	if err != nil {
		return err
	}
	defer l.Close()
	if accounts == nil && runner.Exposed(l) {
		fmt.Fprintf(stderr, "warning: %s asks for no password: whoever can connect there uses the bridge\n", l.Addr())
	}
	s := &dialling{DisguiseDial: d, options: o, listen: l.Addr().String(), since: time.Now(), links: map[*client.Session]bool{}}
	if d.To != config.ToBridge {
		if s.many, err = client.NewMany(o); err != nil {
			return err
		}
		defer s.many.Leave()
	}
	_, port, _ := net.SplitHostPort(s.listen)
	return runner.Run(cmd.Context(), runner.Options{Name: "disguise-" + port, Taken: runner.AddPID, Talk: stderr}, func(ctx context.Context, r *runner.Runner) error {
		r.Show(s.status)
		if err := s.prove(ctx); err != nil {
			return err
		}
		fmt.Fprintf(out, "disguise is up: listening on %s, to the bridge %v over %s\n", s.listen, o.Line.Address, over(o.Paths))
		r.Ready()
		if d.To == "" {
			hold := s.holding(ctx)
			defer hold()
			return socks.NewStreams(s.many.Dial, accounts, o.Log).Serve(ctx, l)
		}
		return s.forward(ctx, l)
	})
}

// over names paths.
func over(paths []client.Path) string {
	if len(paths) == 0 {
		return "this machine's routes"
	}
	var names []string
	for _, p := range paths {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

// prove opens a link, so that what is wrong is said at once.
func (s *dialling) prove(ctx context.Context) error {
	if s.many == nil {
		l, err := client.Dial(ctx, s.options)
		if err != nil {
			return err
		}
		return l.Close()
	}
	return s.many.Open(ctx)
}

// holding keeps a link open in the background, until the returned function is called.
func (s *dialling) holding(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	told := ""
	work.Go(func() {
		s.many.Hold(ctx, func(err error) {
			switch {
			case err == nil && told != "":
				s.options.Log.Info("the link is open again")
				told = ""
			case err != nil && told != err.Error():
				told = err.Error()
				s.options.Log.Warn("no link, and tried again", "error", err)
			}
		})
	})
	return func() { cancel(); work.Wait() }
}

const maxClients = 1024 // programs' connections that are carried at a time

// forward carries each connection to the one destination.
func (s *dialling) forward(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	if s.many != nil {
		defer s.holding(ctx)()
	}
	room := make(chan struct{}, maxClients)
	var lines connlimit.Lines
	return netutil.Serve(ctx, l, func(c net.Conn) {
		select {
		case room <- struct{}{}:
		default:
			netutil.Reset(c)
			return
		}
		work.Go(func() {
			defer func() { <-room }()
			if err := s.carry(ctx, c); err != nil && ctx.Err() == nil && lines.Take(time.Now()) {
				s.options.Log.Warn("a connection failed", "error", err)
			}
		})
	})
}

func (s *dialling) carry(ctx context.Context, c net.Conn) error {
	defer c.Close()
	far, err := s.dial(ctx)
	if err != nil {
		netutil.Reset(c)
		return err
	}
	defer far.Close()
	_, _, err = netutil.Pipe(ctx, netutil.Side{Reader: c, Writer: c}, netutil.Side{Reader: far, Writer: far}, func(error) {
		netutil.Reset(c)
		far.Close()
	})
	if link, ok := far.(*client.Session); ok && ctx.Err() != nil {
		link.Leave()
	}
	return err
}

// dial opens the other side of one connection.
func (s *dialling) dial(ctx context.Context) (net.Conn, error) {
	if s.many != nil {
		host, port, err := netutil.SplitHostPort(s.To)
		if err != nil {
			return nil, err
		}
		to, err := path.HostPort(host, port)
		if err != nil {
			return nil, err
		}
		return s.many.Dial(ctx, to)
	}
	l, err := client.Dial(ctx, s.options)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.links[l] = true
	s.mu.Unlock()
	go func() {
		<-l.Done()
		s.mu.Lock()
		delete(s.links, l)
		s.mu.Unlock()
	}()
	return l, nil
}

// status is shown by `heddle status`.
func (s *dialling) status() control.Status {
	st := &control.Disguise{Listen: s.listen, Bridge: s.options.Line.Address.String(), To: s.To, Since: s.since, Links: []client.Status{}}
	if s.many != nil {
		one, ok, err := s.many.Status()
		if ok {
			st.Links = append(st.Links, one)
		} else if err != nil {
			st.Why = err.Error()
		}
		return control.Status{Disguise: st}
	}
	s.mu.Lock()
	all := make([]*client.Session, 0, len(s.links))
	for l := range s.links {
		all = append(all, l)
	}
	s.mu.Unlock()
	for _, l := range all {
		st.Links = append(st.Links, l.Status())
	}
	return control.Status{Disguise: st}
}
