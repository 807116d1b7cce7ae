// Package masque is `heddle masque`: a MASQUE proxy and its users.
package masque

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/control"
	"heddle/cmd/heddle/internal/runner"
	"heddle/internal/certfile"
	"heddle/internal/text"
	"heddle/path"
	"heddle/path/masque"
	"heddle/proxy/connectudp"
	"heddle/proxy/targets"
	"heddle/proxy/users"
)

// Command is `heddle masque`.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "masque",
		Short: "Be a proxy that masque: paths leave through",
		Long: `Masque has what the owner of a proxy needs: the proxy itself, and its users. The
proxy speaks CONNECT-UDP (RFC 9298) over HTTP/3; any client of that standard can
use it, and heddle's own is a path: masque:https://HOST.`,
		Example: `  heddle masque user add ann --auth users
  heddle masque serve --listen :443 --cert chain.pem --key key.pem --auth users`,
	}
	cmd.AddCommand(newServeCommand(), newUserCommand())
	return cmd
}

// serving holds the flags of `heddle masque serve`.
type serving struct {
	connectudp.Options
	at         netip.AddrPort // parsed from Listen
	Listen     string         `flag:"listen" help:"where clients come to, <[HOST]:PORT>, UDP"`
	Cert       string         `flag:"cert" help:"the certificate and its chain, a PEM <FILE>" complete:"file"`
	Key        string         `flag:"key" help:"the certificate's key, a PEM <FILE>" complete:"file"`
	SelfSigned string         `flag:"self-signed" help:"keep a certificate of its own in <DIR>, and make it where it is absent" complete:"dir"`
	Names      []string       `flag:"name" help:"a <HOST> that clients know the proxy by, for --self-signed; the address it listens on, or this machine's name, where none is given"`
	Auth       string         `flag:"auth" help:"the <FILE> of users that heddle masque user or htpasswd -B makes" complete:"file"`
	Allow      []string       `flag:"allow" help:"forward to these addresses, <CIDR[:PORT]>"`
	Deny       []string       `flag:"deny" help:"do not forward to these addresses, <CIDR[:PORT]>"`
	JSON       bool           `flag:"json" help:"print what was done as JSON at the end"`
}

func newServeCommand() *cobra.Command {
	s := serving{Listen: ":443",
		Options: connectudp.Options{MaxFlows: connectudp.DefaultMaxFlows, Idle: connectudp.DefaultIdle, Drain: connectudp.DefaultDrain}}
	cmd := &cobra.Command{
		Use:   "serve --auth FILE (--cert FILE --key FILE | --self-signed DIR)",
		Short: "Proxy UDP for the users in a file, over HTTP/3",
		Long: `Serve is a proxy for UDP: CONNECT-UDP (RFC 9298) over HTTP/3, until interrupted.

It serves only the users in the --auth file, which is read again when it has
changed; open flows of a user who was removed go on. It forwards to public
addresses only: none of private networks, link-local, loopback or multicast, and
none of this machine's own, unless --allow says so. Of --allow and --deny the
rule with the longest prefix decides.

"heddle status" shows it as masque-PORT: flows by user, bytes, what was refused.

With --self-signed it makes a certificate of its own in DIR, and prints the path
to use, with the certificate's key pinned.

Targets and their networks do not see the clients. The clients' networks do not
see the targets. The proxy itself and an observer of both its sides see both. It
logs no targets without --log-targets.`,
		Example: `  heddle masque serve --listen :443 --cert chain.pem --key key.pem --auth users
  heddle masque serve --listen 192.0.2.9:4433 --self-signed proxy --auth users --allow 10.0.0.0/8:51820`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runMasqueServe(cmd, &s) },
	}
	bind.Flags(cmd, &s)
	_ = cmd.MarkFlagRequired("auth")
	cmd.MarkFlagsMutuallyExclusive("self-signed", "cert")
	cmd.MarkFlagsRequiredTogether("cert", "key")
	cmd.MarkFlagsOneRequired("cert", "self-signed")
	return cmd
}

// runMasqueServe serves until ctx ends.
func runMasqueServe(cmd *cobra.Command, s *serving) error {
	if err := s.complete(); err != nil {
		return cli.Usage(err)
	}
	certificate, err := s.certificate()
	if err != nil {
		return err
	}
	s.Certificate = certificate.Get
	socket, err := path.ListenUDP(s.at)
	if err != nil {
		return err
	}
	p, err := connectudp.New(socket, s.Options)
	if err != nil {
		return err
	}
	stderr := cmd.ErrOrStderr()
	fmt.Fprintf(stderr, "masque: listening on %v for %s\n", p.Addr(), text.Count(s.Users.Count(), "user"))
	if s.SelfSigned != "" {
		fmt.Fprintf(stderr, "masque: use it as a path: NAME=masque:https://%s#sha256=%s\n",
			net.JoinHostPort(s.hosts()[0], strconv.Itoa(int(p.Addr().Port()))), masque.Pin(certificate.Leaf()))
	}
	o := runner.Options{Name: "masque-" + strconv.Itoa(int(p.Addr().Port())), Taken: runner.GoUnseen, Talk: stderr}
	err = runner.Run(cmd.Context(), o, func(ctx context.Context, r *runner.Runner) error {
		r.Show(func() control.Status {
			s := p.Status()
			return control.Status{Proxy: &s}
		})
		return p.Run(ctx)
	})
	status := p.Status()
	if s.JSON {
		return errors.Join(err, cli.WriteJSON(cmd.OutOrStdout(), status))
	}
	fmt.Fprintf(stderr, "masque: %s; %d packets up, %d down; refused: %d wrong credentials, %d targets, %d over a limit\n",
		text.Count(int(status.Flows), "flow"), status.Up.Packets, status.Down.Packets, status.RefusedAuth, status.RefusedTarget, status.RefusedLimit)
	return err
}

// complete reads the files that the flags name, except the certificate.
func (s *serving) complete() (err error) {
	if s.MaxFlows < 1 || s.Idle <= 0 || s.Drain < 0 {
		return &path.Error{What: "masque serve", Why: "--max-flows, --idle and --drain are numbers above 0"}
	}
	a, err := net.ResolveUDPAddr("udp", s.Listen)
	if err != nil {
		return &path.Error{What: fmt.Sprintf("listen %q", s.Listen), Why: "not an address and a port", Hint: "write :443, 192.0.2.9:443 or [2001:db8::9]:443", Err: err}
	}
	s.at = a.AddrPort()
	if a.IP == nil {
		s.at = netip.AddrPortFrom(netip.IPv6Unspecified(), s.at.Port())
	}
	if s.Users, err = users.Load(s.Auth); err != nil {
		return err
	}
	s.Targets, err = targets.New(s.Allow, s.Deny)
	return err
}

func (s *serving) certificate() (*certfile.Certificate, error) {
	if s.SelfSigned != "" {
		return connectudp.SelfSigned(s.SelfSigned, s.hosts())
	}
	return certfile.Load(s.Cert, s.Key, nil)
}

// hosts returns the names that clients know the proxy by.
func (s *serving) hosts() []string {
	if len(s.Names) > 0 {
		return s.Names
	}
	if a := s.at.Addr(); !a.IsUnspecified() {
		return []string{a.Unmap().String()}
	}
	if name, err := os.Hostname(); err == nil && masque.CheckHost(name) == nil {
		return []string{name}
	}
	return []string{"localhost"}
}

func newUserCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "user",
		Short: "Say who may use a proxy",
		Long: `User keeps the file of users that heddle masque serve reads. Each line is
NAME:HASH, where the hash is that of a token which heddle made, or of a password
as htpasswd -B makes it. The secrets themselves are nowhere kept.`,
		Example: `  heddle masque user add ann --auth users
  heddle masque user list --auth users
  heddle masque user remove ann --auth users`,
	}
	var f struct {
		Auth string `flag:"auth" help:"the <FILE> of users" complete:"file"`
	}
	bind.Persistent(cmd, &f)
	_ = cmd.MarkPersistentFlagRequired("auth")
	add := &cobra.Command{
		Use:   "add NAME --auth FILE",
		Short: "Add a user, and print the user's token once",
		Long: `Add makes a token for a new user, prints it, and keeps its hash only. The user
puts the token into a file that nobody else can read, and names that with
--secret PATH=FILE. A file that the output is redirected to is made so.`,
		Example: "  heddle masque user add ann --auth users > ann.token",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.KeepToOwner(cmd.OutOrStdout()); err != nil {
				return err
			}
			token, err := users.Add(f.Auth, args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
			return err
		},
	}
	remove := &cobra.Command{
		Use:   "remove NAME --auth FILE",
		Short: "Remove a user",
		Long: `Remove takes a user out of the file. A running proxy lets no new flow of that
user begin; flows that are open go on until they end.`,
		Example: "  heddle masque user remove ann --auth users",
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return users.Remove(f.Auth, args[0]) },
	}
	cmd.AddCommand(add, remove, newListCommand(&f.Auth))
	return cmd
}

func newListCommand(auth *string) *cobra.Command {
	return &cobra.Command{
		Use:     "list --auth FILE",
		Short:   "List the users",
		Long:    "List prints the names of the users, one a line.",
		Example: "  heddle masque user list --auth users",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			names, err := users.Names(*auth)
			if err != nil {
				return err
			}
			for _, name := range names {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), name); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
