package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/internal/runner"
	"heddle/config"
	"heddle/internal/netutil"
	"heddle/internal/text"
	"heddle/proxy/users"
	"heddle/stripe"
	"heddle/stripe/relay"
)

func newDialCommand() *cobra.Command {
	d := config.DefaultStreamDial()
	var file string
	cmd := &cobra.Command{
		Use:   "dial NAME --listen HOST:PORT --to HOST:PORT --key KEY --via NAME=KIND:ARG...",
		Short: "Reach a peer's program over several paths",
		Long: `Dial listens for TCP programs, and carries each connection over several paths to
the peer that serves NAME, until interrupted. With --config it does what the
[[dial]] table of that NAME in a heddle.toml says, and where there is only one,
NAME may be left out; a flag goes before its key. heddle run does what all of
them say.

With --socks it is a SOCKS5 proxy whose other side is the peer, which must serve
with --socks too: names are resolved there. It asks for no password, unless
--socks-users names a file of users.

Nothing of a connection leaves before the paths that it takes are up. With fewer
healthy paths than --min-paths it stops, and what was under way on a dead path
waits for that path; --degrade allows otherwise. With --shares, paths may die
without a pause as long as enough are left. --warm sessions are dialled ahead,
so that a new connection waits for no handshake.

Instead of --via, --paths chooses overlay nodes that this device holds grants
for: by a survey, by their answers or at random. Instead of --to and --key, a
board can give the peer: see heddle-overlay(1) and heddle-board(1).

With --backend mptcp the kernel's MPTCP carries the stream through nodes in mode
nat; mptcp-nat uses rules for each source address, as MACHETE did. The kernel
has one scheduler, sends a short message over one path, and FAILS OPEN: it sends
the data of a dying path over the others. Both need CAP_NET_ADMIN.

An observer of one path gets a part of each connection's ciphertext. With
--shares, fewer paths than the scheme needs reveal nothing about the content;
with shamir: or xor: not even if the ciphers are broken. Dial prints what holds,
and who sees the peer's name. Each network still sees that this device talks to
a node, and how much. An observer of all paths, such as the peer's own network,
sees the whole ciphertext.`,
		Example: `  heddle stream dial files --listen 127.0.0.1:2222 --to files.example:4470 --key ed25519:KEY --via a=node:tokyo --via b=node:paris --via c=node:oslo --shares 2of3
  heddle stream dial web --socks 127.0.0.1:1080 --to 192.0.2.1:4470 --key ed25519:KEY --via home=if:eth0 --via lte=if:wwan0
  heddle stream dial files --config heddle.toml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				d.Name = args[0]
			}
			if file != "" {
				name := d.Name
				of := func(c config.Config) []config.StreamDial { return c.Dials }
				if err := fileTable(cmd, file, "dial", name, of, &d); err != nil {
					return err
				}
			} else if len(args) == 0 {
				return cli.UsageBy(cmd, errors.New("no NAME of a service is given"))
			}
			d.KeptBoard()
			if err := d.Check(); err != nil {
				return cli.Usage(err)
			}
			return RunDial(cmd.Context(), d, false, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	bind.Flags(cmd, &d)
	bind.Config(cmd, &file)
	return cmd
}

// front is a listening port of a dialler.
type front struct {
	net.Listener
	socks bool
}

type fronts []front

// openFronts opens the ports before anything is dialled, so that a port in use is reported at once.
func openFronts(ctx context.Context, d config.StreamDial, u *users.Users, talk io.Writer) (all fronts, err error) {
	for _, p := range []struct {
		flag, at string
		guarded  bool
	}{{"listen", d.Listen, false}, {"socks", d.Socks, u != nil}} {
		if p.at == "" {
			continue
		}
		l, err := runner.Listen(ctx, p.flag, p.at, false)
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, front{l, p.flag == "socks"})
		if !p.guarded && runner.Exposed(l) {
			fmt.Fprintf(talk, "warning: %s asks for no password: whoever can connect there reaches the peer\n", l.Addr())
		}
	}
	return all, nil
}

func (f fronts) close() {
	for _, one := range f {
		one.Close()
	}
}

// String lists the ports.
func (f fronts) String() string {
	var where []string
	for _, one := range f {
		text := one.Addr().String()
		if one.socks {
			text += " (SOCKS5)"
		}
		where = append(where, text)
	}
	return strings.Join(where, ", ")
}

// serve carries incoming connections, each over a session of the pool.
func (f fronts) serve(ctx context.Context, carrier *relay.Front) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { carrier.Pool.Run(ctx) })
	failed := make([]error, len(f))
	for i, one := range f {
		serve := carrier.Serve
		if one.socks {
			serve = carrier.ServeSOCKS
		}
		running.Go(func() {
			failed[i] = serve(ctx, one.Listener)
			stop()
		})
	}
	running.Wait()
	return errors.Join(failed...)
}

// dialling is one run of `heddle stream dial`.
type dialling struct {
	config.StreamDial
	fronts    fronts
	users     *users.Users // of the SOCKS5 proxy; nil admits everybody
	keylog    io.Writer    // may be nil
	out, talk io.Writer
	since     time.Time

	mu     sync.Mutex
	dialer *Dialer // nil before the first session
	pool   *relay.Pool
	why    string // why there is no session yet
}

// RunDial carries connections until ctx ends. If no session can be dialled at the start, it fails, or retries if patient.
func RunDial(ctx context.Context, d config.StreamDial, patient bool, out, talk io.Writer) error {
	keylog, closeKeylog, err := OpenKeylog(d.Keylog, talk)
	if err != nil {
		return err
	}
	defer closeKeylog()
	s := &dialling{StreamDial: d, keylog: keylog, out: out, talk: talk, since: time.Now(), why: "no session yet"}
	if s.users, err = d.SocksUsers.Load(); err != nil {
		return err
	}
	if s.fronts, err = openFronts(ctx, d, s.users, talk); err != nil {
		return err
	}
	defer s.fronts.close()
	body := func(ctx context.Context, r *runner.Runner) error {
		r.Show(s.status)
		for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
			err := s.begin(ctx)
			switch {
			case err == nil:
				r.Ready()
				return s.carry(ctx)
			case !patient:
				return err
			case ctx.Err() != nil:
				return nil
			}
			s.tell(err)
			if netutil.Sleep(ctx, wait) != nil {
				return nil
			}
		}
	}
	o := runner.Options{Name: d.SessionName(), Taken: runner.AddPID, Talk: talk}
	if patient { // the name is known before the session
		o.Taken = runner.Refuse
	}
	return runner.Run(ctx, o, body)
}

// Retry intervals of a patient dialler.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// tell prints why there is no session, if the reason is new.
func (s *dialling) tell(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why != err.Error() {
		s.why = err.Error()
		fmt.Fprintf(s.talk, "%s: no session yet, and tried again: %s\n", s.SessionName(), s.why)
	}
}

// begin dials the first session, and prints the claim.
func (s *dialling) begin(ctx context.Context) error {
	dialer, err := NewDialer(ctx, s.Stripe, s.Name, s.keylog, s.talk)
	if err != nil {
		return err
	}
	first, err := dialer.Dial(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.dialer, s.pool, s.why = dialer, relay.NewPool(s.Warm, func(ctx context.Context) (relay.Session, error) { return dialer.begin(ctx) }, dialer.options.Log), ""
	s.mu.Unlock()
	s.pool.Put(first)
	is := first.Status()
	dialer.PrintClaim(s.out, is)
	fmt.Fprintf(s.out, "%s is up: listening on %s, to %s over %s, %s\n", s.Name, s.fronts, dialer.stripe.To, text.Count(len(is.Paths), "path"), CutText(is))
	return nil
}

func (s *dialling) carry(ctx context.Context) error {
	ctx, stop := quietly(ctx, s.dialer.quiet)
	defer stop()
	return s.fronts.serve(ctx, &relay.Front{Pool: s.pool, Users: s.users, Log: s.dialer.options.Log})
}

// status is shown by `heddle status`.
func (s *dialling) status() control.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &control.Stream{Role: "dial", Service: s.Name, Listen: s.fronts.String(), To: s.To, Since: s.since, Why: s.why}
	var all []relay.Session
	if s.dialer != nil {
		warm, used, why := s.pool.Sessions()
		all, answer.To, answer.Warm = slices.Concat(used, warm), s.dialer.stripe.To, len(warm)
		if why != nil {
			answer.Why = why.Error()
		}
	}
	answer.Sessions = statuses(all)
	return control.Status{Stream: answer}
}

// SharedObservers describes who sees more than one path of a session.
func SharedObservers(s stripe.Status) (lines []string) {
	sees := map[string][]string{}
	for _, p := range s.Paths {
		if p.Observer != "" {
			sees[p.Observer] = append(sees[p.Observer], p.Name)
		}
	}
	for _, who := range slices.Sorted(maps.Keys(sees)) {
		if names := sees[who]; len(names) > 1 {
			lines = append(lines, fmt.Sprintf("the network at %s sees %s, and has what they carry together", who, strings.Join(names, " and ")))
		}
	}
	return lines
}

// CutText describes how a session is cut.
func CutText(s stripe.Status) string {
	if s.Shares != "" && s.Shares != "none" {
		return s.Shares + " shares, " + s.Schedule
	}
	return s.Schedule
}
