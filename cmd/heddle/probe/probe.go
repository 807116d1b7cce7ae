// Package probe is `heddle probe`: it tests whether a QUIC server lets its clients change their address.
package probe

import (
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/config"
	"heddle/path"
	"heddle/split/quicprobe"
)

// Command is `heddle probe`.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "probe",
		Short:   "Ask a server how far its sessions may be split",
		Long:    "Probe is a client of a server for a short while, and says what the server allows.",
		Example: "  heddle probe quic www.example.com",
	}
	cmd.AddCommand(newQUICCommand())
	return cmd
}

// probeQUIC holds the flags that need conversion.
type probeQUIC struct {
	quicprobe.Options
	paths  config.Paths
	CA     string `flag:"ca" help:"a <FILE> of certificates (PEM) to trust instead of those of this machine" complete:"file"`
	JSON   bool   `flag:"json" help:"print JSON"`
	DryRun bool   `flag:"dry-run" help:"say what would be sent, and send nothing"`
}

func newQUICCommand() *cobra.Command {
	p := probeQUIC{Options: quicprobe.Options{For: quicprobe.DefaultFor, MaxBytes: quicprobe.DefaultMaxBytes}, paths: config.DefaultPaths()}
	cmd := &cobra.Command{
		Use:   "quic HOST[:PORT]",
		Short: "Ask a QUIC server which changes of address it follows, and how many",
		Long: `Quic connects to a server as a client does, changes the client's port and
address as a NAT does, and says how the server reacts: QUIC versions, transport
parameters, whether a connection survives a change, how many addresses and ports
in turn it accepts, and how often the address may change while a download keeps
nine tenths of its speed. It ends with the flags for heddle split that fit the
server.

Without --via the probe leaves by this machine's own route, and changes only the
port. It sends no request but GET. Without --get it asks for /, which is rarely
long enough to measure speed. --dry-run says what would be sent. The server is
somebody's: a probe makes some thirty connections, one after the other, more if
it has to repeat what failed, and ends at the limits of --for and --max-bytes.

The exit code is 0 once the probe has an answer, even if the server forbids what
splitting needs, or if a limit ended the probe: the answer says so. It is 1 if
the server could not be reached, or stopped answering.`,
		Example: `  heddle probe quic www.example.com
  heddle probe quic www.example.com --via home=if:eth0 --via lte=if:wwan0 --get /big-file
  heddle probe quic 192.0.2.1:4433 --sni www.example.com --ca test-ca.pem --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Server, p.Talk = args[0], cmd.ErrOrStderr()
			return p.run(cmd)
		},
	}
	bind.Flags(cmd, &p)
	bind.Flags(cmd, &p.paths, "via", "path", "secret", "identity")
	cmd.Flags().Lookup("path").Usage = "another path, `NAME=KIND:ARG`, for a tunnel to ride"
	return cmd
}

func (p *probeQUIC) run(cmd *cobra.Command) error {
	if err := p.prepare(); err != nil {
		return cli.Usage(err)
	}
	out, talk := cmd.OutOrStdout(), cmd.ErrOrStderr()
	plan, err := quicprobe.NewPlan(p.Options)
	if err != nil {
		return cli.Usage(err)
	}
	switch {
	case p.DryRun && p.JSON:
		return cli.WriteJSON(out, plan)
	case p.DryRun:
		_, err := io.WriteString(out, plan.String())
		return err
	}
	if p.Insecure {
		fmt.Fprintln(talk, "warning: --insecure: nobody checks who answers")
	}
	report, err := quicprobe.Run(cmd.Context(), p.Options)
	if report == nil {
		return err
	}
	settle(&report.Advice)
	if p.JSON {
		if jsonErr := cli.WriteJSON(out, report); jsonErr != nil {
			return jsonErr
		}
		return err
	}
	var text strings.Builder
	if textErr := quicprobe.WriteText(&text, report); textErr != nil {
		return textErr
	}
	if _, writeErr := io.WriteString(out, cli.Folded(text.String(), cli.TerminalWidth(out))); writeErr != nil {
		return writeErr
	}
	return err
}

// settle adds the flag of heddle split for a slow start.
func settle(a *quicprobe.Advice) {
	if a.Settle > 0 && a.Split {
		a.Flags = append(a.Flags, "--settle", a.Settle.String())
	}
}

// prepare converts flags to options.
func (p *probeQUIC) prepare() error {
	if p.For <= 0 {
		return &path.Error{What: fmt.Sprintf("--for %v", p.For), Why: "a probe takes some time", Hint: "leave it out for a minute"}
	}
	if p.MaxBytes <= 0 {
		return &path.Error{What: fmt.Sprintf("--max-bytes %d", p.MaxBytes), Why: "a probe takes some bytes", Hint: "leave it out for 134.2 MB"}
	}
	if p.STUN != "" {
		if _, _, err := net.SplitHostPort(p.STUN); err != nil {
			return &path.Error{What: fmt.Sprintf("--stun %q", p.STUN), Why: "not a host and a port", Hint: "write stun.example.com:3478"}
		}
	}
	if len(p.paths.Via) > 0 {
		o, err := p.paths.Options()
		if err != nil {
			return err
		}
		p.Via, p.Beside, p.Secret, p.Identity = o.Via, o.Beside, o.Secret, o.Identity
	}
	if p.CA == "" {
		return nil
	}
	if p.Insecure {
		return &path.Error{What: "--ca and --insecure", Why: "the one says whom to trust, the other to trust anybody", Hint: "leave one of them out"}
	}
	text, err := os.ReadFile(p.CA)
	if err != nil {
		return &path.Error{What: "--ca", Why: "cannot read it", Err: err}
	}
	p.Roots = x509.NewCertPool()
	if !p.Roots.AppendCertsFromPEM(text) {
		return &path.Error{What: "--ca " + p.CA, Why: "no certificate is in it", Hint: "it must be PEM, with BEGIN CERTIFICATE"}
	}
	return nil
}
