package stream

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"heddle/board/registry"
	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/internal/runner"
	"heddle/config"
	"heddle/identity"
	"heddle/internal/text"
	"heddle/proxy/targets"
	"heddle/stripe"
	"heddle/stripe/relay"
)

func newServeCommand() *cobra.Command {
	s := config.DefaultStreamServe()
	var file string
	cmd := &cobra.Command{
		Use:   "serve --to HOST:PORT --allow KEY... | --config FILE",
		Short: "Let peers reach a TCP program over several paths",
		Long: `Serve takes striped sessions from peers whose keys it knows, and carries each to
one TCP program, until interrupted. The program needs to know nothing of it.

With --config it uses the [[serve]] table of a heddle.toml; --name selects one
of several. A flag overrides its key. heddle run serves all of them.

With --socks it is a SOCKS5 proxy instead of one program: peers name their
destinations, and this machine connects and resolves names. It connects to
public addresses only, unless --allow-to names others.

The peer's paths and schedule decide what is hidden; the peer's side prints it.
All paths meet in this device's own network, which sees all that TLS shows.`,
		Example: `  heddle stream serve --name files --to 127.0.0.1:22 --allow ed25519:KEY
  heddle stream serve --name web --socks --allow ed25519:KEY
  heddle stream serve --config heddle.toml --name files`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" {
				name := ""
				if cmd.Flags().Changed("name") {
					name = s.Name
				}
				of := func(c config.Config) []config.StreamServe { return c.Serves }
				if err := fileTable(cmd, file, "serve", name, of, &s); err != nil {
					return err
				}
			}
			if err := s.Check(); err != nil {
				return cli.Usage(err)
			}
			return RunServe(cmd.Context(), s, cmd.ErrOrStderr())
		},
	}
	bind.Flags(cmd, &s)
	bind.Config(cmd, &file)
	return cmd
}

// streamDoor is the listening side of a service.
type streamDoor struct {
	listener[Session]
	key   identity.Key
	since time.Time
	log   *slog.Logger
	quiet func() // ends the log
	Close func()
}

// OpenDoor listens for peers.
func OpenDoor(ctx context.Context, a config.Admission, talk io.Writer) (*streamDoor, error) {
	id, err := streamIdentity(a.Identity, talk)
	if err != nil {
		return nil, err
	}
	accept, err := a.Accept()
	if err != nil {
		return nil, err
	}
	keylog, closeKeylog, err := OpenKeylog(a.Keylog, talk)
	if err != nil {
		return nil, err
	}
	log, quiet := newLog()
	o := stripe.ListenOptions{Identity: id, Accept: accept, MaxSessions: a.MaxSessions, Log: log, KeyLog: keylog,
		Service: func(_ identity.Key, service string) error {
			if service != a.Name {
				return fmt.Errorf("no service is called %q here", service)
			}
			return nil
		}}
	l, err := listenBackend(ctx, a, o)
	if err != nil {
		return nil, err
	}
	door := &streamDoor{listener: l, key: id.Key(), since: time.Now(), log: log, quiet: quiet}
	entry := registry.Stream{Name: a.Name, Key: id.Key(), Addresses: a.Address}
	if len(entry.Addresses) == 0 {
		entry.Addresses = []string{l.Addr().String()}
	}
	unlist, err := registry.List(ctx, a.Board, id, entry, log)
	if err != nil {
		l.Close()
		return nil, err
	}
	door.Close = func() {
		unlist()
		door.listener.Close()
		closeKeylog()
	}
	return door, nil
}

// Status returns the function for `heddle status`.
func (d *streamDoor) Status(role string, a config.Admission, to string) func() control.Status {
	return func() control.Status {
		return control.Status{Stream: &control.Stream{Role: role, Service: a.Name, Listen: d.Addr().String(), To: to, Since: d.since,
			Sessions: statuses(d.Sessions())}}
	}
}

// Welcome prints how peers connect.
func (d *streamDoor) Welcome(talk io.Writer, a config.Admission, what, command string) {
	who := text.Count(len(a.Allow), "key")
	for _, key := range a.Allow {
		if key == config.AnyKey {
			who = "whoever has a key"
			fmt.Fprintln(talk, "warning: --allow any lets in everybody who reaches this port")
		}
	}
	fmt.Fprintf(talk, "%s: listening on %s for %s: %s\n", a.Name, d.Addr(), who, what)
	fmt.Fprintf(talk, "%s: peers: heddle %s --to %s --key %v --via NAME=KIND:ARG...\n", a.Name, command, runner.Reachable(d.Addr()), d.key)
}

// RunServe serves until ctx ends.
func RunServe(ctx context.Context, s config.StreamServe, talk io.Writer) error {
	back := &relay.Back{To: s.To}
	to := s.To
	if s.Socks {
		rules, err := targets.New(s.AllowTo, s.DenyTo)
		if err != nil {
			return cli.Usage(err)
		}
		back.Allowed = rules.Allowed
		if to == "" {
			to = "SOCKS5"
		}
	}
	door, err := OpenDoor(ctx, s.Admission, talk)
	if err != nil {
		return err
	}
	defer door.Close()
	back.Log = door.log
	return runner.Run(ctx, runner.Options{Name: s.SessionName()}, func(ctx context.Context, r *runner.Runner) error {
		r.Show(door.Status("serve", s.Admission, to))
		door.Welcome(talk, s.Admission, to, "stream dial "+s.Name)
		r.Ready()
		return Accept(ctx, door, func(ctx context.Context, c Session) {
			if err := back.Serve(ctx, c); err != nil && ctx.Err() == nil {
				door.log.Warn("a session failed", "service", s.Name, "peer", c.Peer(), "error", err)
				c.Abort("the server gave it up")
			}
		})
	})
}
