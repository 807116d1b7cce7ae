package disguise

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/config"
	"heddle/disguise/cover"
	"heddle/disguise/handshake"
	"heddle/disguise/pt"
	"heddle/path"
)

// torrcFlags are those of `heddle disguise torrc`.
type torrcFlags struct {
	config.DisguiseFront
	Listen string   `flag:"listen" help:"where clients come to the bridge, <ADDRESS:PORT>; with --behind to the web server"`
	Line   string   `flag:"line" help:"take the bridge line from <FILE>, such as /var/lib/tor/pt_state/heddle_bridgeline.txt" complete:"file"`
	Cover  []string `flag:"cover" help:"what connections look like, <NAME[:SETTING=VALUE]>, such as https:site=/etc/heddle/site.db"`
}

func newTorrcCommand() *cobra.Command {
	f := torrcFlags{Listen: "0.0.0.0:443"}
	return bind.Flags(&cobra.Command{
		Use:   "torrc",
		Short: "Print what to add to torrc, for a bridge and for a client",
		Long: `Print the lines with which Tor starts this transport, at a bridge and at its
clients, ready to paste into torrc. The bridge line of the client's part is
known once the bridge has run: --line reads it from its file.

With --behind they are those of a bridge behind your own web server.`,
		Example: `  heddle disguise torrc --listen 0.0.0.0:443
  heddle disguise torrc --cover https:site=/etc/heddle/site.db --behind 127.0.0.1:8081 --visitor-header X-Forwarded-For
  heddle disguise torrc --line /var/lib/tor/pt_state/heddle_bridgeline.txt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.print(cmd) },
	}, &f)
}

func (f torrcFlags) print(cmd *cobra.Command) error {
	if at, err := netip.ParseAddrPort(f.Listen); err != nil || at.Port() == 0 {
		return cli.Usage(&path.Error{What: "--listen", Why: fmt.Sprintf("%q is no address and port", f.Listen), Hint: "such as 0.0.0.0:443 or [::]:443"})
	}
	transport := defaultPT()
	transport.DisguiseFront, transport.Cover = f.DisguiseFront, f.Cover
	if err := cli.UsageBy(cmd, transport.serve().Check()); err != nil {
		return err
	}
	t := pt.Torrc{Listen: f.Listen, Behind: f.Behind != ""}
	var err error
	if t.Options, err = f.options(); err != nil {
		return err
	}
	if len(f.Cover) > 0 {
		t.Cover = cover.Needed(f.Cover[0])
	}
	if f.Line != "" {
		if t.Line, err = lineIn(f.Line); err != nil {
			return err
		}
	}
	if t.Program, err = os.Executable(); err != nil {
		return err
	}
	if strings.ContainsAny(t.Program, " \t") {
		return &path.Error{What: t.Program, Why: "Tor cannot start a program whose path holds a space", Hint: "copy heddle to another directory"}
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), t)
	return err
}

// options are the bridge's ServerTransportOptions, which hold no spaces.
func (f torrcFlags) options() (all []string, err error) {
	add := func(name, value string) {
		if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' || r == '#' }) {
			err = cli.Usage(&path.Error{What: "--" + name, Why: fmt.Sprintf("Tor cannot pass on %q", value), Hint: "letters, digits and signs of ASCII without # and spaces"})
		}
		if value != "" {
			all = append(all, name+"="+value)
		}
	}
	for _, spec := range f.Cover {
		add("cover", spec)
	}
	add("behind", f.Behind)
	add("visitor-header", f.VisitorHeader)
	add("origin", f.Origin)
	add("acme", f.ACME)
	add("acme-authority", f.ACMEAuthority)
	return all, err
}

// lineIn returns the bridge line in a file, which may hold placeholders yet.
func lineIn(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", &path.Error{What: "--line", Err: err, Hint: "the transport writes the file when Tor starts it at the bridge; Tor's user and root can read it"}
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "Bridge "+handshake.Transport+" ") {
			return line, nil
		}
	}
	return "", &path.Error{What: "--line " + file, Why: "it holds no bridge line", Hint: "such a line begins with Bridge " + handshake.Transport}
}
