// Package stream is `heddle stream`: TCP programs over several paths, served and dialled.
package stream

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"heddle/board/registry"
	"heddle/cmd/heddle/board"
	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/config"
	"heddle/identity"
	"heddle/internal/netutil"
	"heddle/path"
	"heddle/stripe"
	"heddle/stripe/relay"
)

// Command is `heddle stream`.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stream",
		Short: "Carry TCP programs over several paths at once",
		Long: `Stream carries any TCP program over several paths at once, between two devices
that know each other's keys. Each path carries a part of every connection, or
shares of it, so that who watches one path does not get the whole.

One device serves a program, the other dials it. Inside is TLS 1.3 from end to
end, always. heddle send and heddle recv carry files in the same way.`,
		Example: `  heddle stream serve --name files --to 127.0.0.1:22 --allow ed25519:KEY
  heddle stream dial files --listen 127.0.0.1:2222 --to files.example:4470 --key ed25519:KEY --via a=node:tokyo --via b=node:paris
  heddle stream dial files --config heddle.toml`,
	}
	cmd.AddCommand(newServeCommand(), newDialCommand())
	return cmd
}

// service is a [[serve]] or [[dial]] table.
type service interface{ ServiceName() string }

// fileTable reads a table of a heddle.toml with that name, or the only one if name is empty. Flags have priority. It
// prints problems like heddle check.
func fileTable[T service](cmd *cobra.Command, file, table, name string, of func(config.Config) []T, into *T) error {
	return bind.FlagsOver(cmd, func() error {
		var c config.Config
		if err := cli.Loaded(cmd, file, config.Load, &c); err != nil {
			return err
		}
		return oneOf(of(c), file, table, name, into)
	})
}

func oneOf[T service](all []T, file, table, name string, into *T) error {
	var names []string
	for _, one := range all {
		if one.ServiceName() == name || name == "" && len(all) == 1 {
			*into = one
			return nil
		}
		names = append(names, one.ServiceName())
	}
	wrong := &path.Error{What: file, Why: fmt.Sprintf("no [[%s]] table is called %q", table, name), Hint: "tables: " + strings.Join(names, ", ")}
	switch {
	case len(names) == 0:
		wrong.Why, wrong.Hint = fmt.Sprintf("it has no [[%s]] table", table), "such a table has keys named as the flags of this command"
	case name == "":
		wrong.Why = fmt.Sprintf("it has several [[%s]] tables", table)
	}
	return cli.Usage(wrong)
}

// streamIdentity reads this device's identity, or makes one.
func streamIdentity(file string, talk io.Writer) (identity.Identity, error) {
	file, err := identity.FileOr(file)
	if err != nil {
		return identity.Identity{}, err
	}
	id, created, err := identity.LoadOrCreate(file)
	if created {
		fmt.Fprintf(talk, "stream: made a new identity in %s, with the key %v\n", file, id.Key())
	}
	return id, err
}

// OpenKeylog opens the file for the keys of the inner TLS. Without a file, keylog is nil.
func OpenKeylog(file string, talk io.Writer) (keylog io.Writer, closeKeylog func() error, err error) {
	if file == "" {
		return nil, func() error { return nil }, nil
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND|control.NoFollow, 0o600)
	if err != nil {
		return nil, nil, &path.Error{What: "keylog " + file, Why: "it cannot be written", Err: err}
	}
	fmt.Fprintf(talk, "WARNING: the keys of all sessions are written to %s: whoever has it reads everything. It is for experiments.\n", file)
	return f, f.Close, nil
}

// peerOf parses the address of a device.
func peerOf(ctx context.Context, to string) (path.Target, error) {
	host, port, err := net.SplitHostPort(to)
	n, portErr := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err = cmp.Or(err, portErr); err != nil {
		return path.Target{}, &path.Error{What: "stream to " + to, Why: "it is not HOST:PORT", Err: err}
	}
	return path.HostPort(host, uint16(n))
}

// Dialer dials sessions to one peer.
type Dialer struct {
	stripe  config.Stripe
	options stripe.Options
	lookup  *lookup
	quiet   func() // ends the log of sessions
}

// NewDialer makes a dialer from flags. The caller closes the key log.
func NewDialer(ctx context.Context, s config.Stripe, service string, keylog io.Writer, talk io.Writer) (*Dialer, error) {
	id, err := streamIdentity(s.Identity, talk)
	if err != nil {
		return nil, err
	}
	o, bases, err := s.Options()
	if err != nil {
		return nil, err
	}
	var known registry.Directory
	if s.Board != "" {
		known, err = registry.Lookup(ctx, s.Board, id, directoryPatience, s.MaxAge)
		switch {
		case err == nil:
			board.SayOfDirectory(talk, known)
		case s.To != "" && s.Key != "":
			fmt.Fprintln(talk, "stream: only the nodes of kept passes can be chosen:", err)
		default:
			return nil, err
		}
		if err := findPeer(known, service, &s, &o, talk); err != nil {
			return nil, err
		}
	}
	askOver(o.Paths)
	look := &lookup{bases: bases}
	if s.Paths > 0 {
		all, err := candidates(known, id.Key())
		if err != nil {
			return nil, err
		}
		if o.Paths, err = (chooser{s, id, bases, look, talk}).choose(ctx, all); err != nil {
			return nil, err
		}
	}
	log, quiet := newLog()
	o.Identity, o.Service, o.Log, o.KeyLog = id, service, log, keylog
	return &Dialer{stripe: s, options: o, lookup: look, quiet: quiet}, nil
}

// To is the peer's address.
func (d *Dialer) To() string { return d.stripe.To }

// Dial starts a session, and waits until the peer has accepted it.
func (d *Dialer) Dial(ctx context.Context) (Session, error) {
	s, err := d.begin(ctx)
	if err != nil {
		return nil, err
	}
	if err := relay.LetIn(ctx, s); err != nil {
		return nil, d.notLetIn(err)
	}
	return s, nil
}

// begin starts a session: its paths are up, and the peer has proved its key on each. It does not wait until the peer
// accepts the session, so that a first write saves a round trip.
func (d *Dialer) begin(ctx context.Context) (s Session, err error) {
	to, err := peerOf(ctx, d.stripe.To)
	if err != nil {
		return nil, err
	}
	if d.stripe.Backend != config.BackendStripe {
		var at netip.AddrPort
		if at, err = d.lookup.peer(ctx, to); err == nil {
			s, err = dialKernel(ctx, d.stripe, d.options, at)
		}
	} else {
		o := d.options
		o.To = to
		s, err = stripe.Dial(ctx, o)
	}
	if err != nil {
		return nil, d.notLetIn(err) // an untyped nil
	}
	return s, nil
}

// notLetIn adds a hint if the peer does not know this device.
func (d *Dialer) notLetIn(err error) error {
	if !strings.Contains(err.Error(), "tls: bad certificate") { // alert for a refused key (RFC 8446, section 6.2)
		return err
	}
	return cli.Hint(err, "the peer does not let this device in: its owner has to add --allow "+d.options.Identity.Key().String())
}

// Accept serves each incoming session until ctx ends; then it ends all of them.
func Accept(ctx context.Context, d *streamDoor, serve func(context.Context, Session)) error {
	var sessions sync.WaitGroup
	defer sessions.Wait()
	ctx, stop := quietly(ctx, d.quiet)
	defer stop()
	return netutil.Serve(ctx, d.listener, func(c Session) { sessions.Go(func() { serve(ctx, c) }) })
}

func statuses[S relay.Session](sessions []S) []stripe.Status {
	list := make([]stripe.Status, 0, len(sessions))
	for _, c := range sessions {
		list = append(list, c.Status())
	}
	return list
}
