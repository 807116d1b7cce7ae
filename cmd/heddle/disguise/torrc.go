package disguise

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/disguise/handshake"
	"heddle/disguise/pt"
	"heddle/path"
)

func newTorrcCommand() *cobra.Command {
	f := struct {
		Listen string `flag:"listen" help:"where clients come to the bridge, <ADDRESS:PORT>"`
		Line   string `flag:"line" help:"take the bridge line from <FILE>, such as /var/lib/tor/pt_state/heddle_bridgeline.txt" complete:"file"`
	}{Listen: "0.0.0.0:443"}
	return bind.Flags(&cobra.Command{
		Use:   "torrc",
		Short: "Print what to add to torrc, for a bridge and for a client",
		Long: `Print the lines with which Tor starts this transport, at a bridge and at its
clients, ready to paste into torrc. The bridge line of the client's part is
known once the bridge has run: --line reads it from its file.`,
		Example: `  heddle disguise torrc --listen 0.0.0.0:443
  heddle disguise torrc --line /var/lib/tor/pt_state/heddle_bridgeline.txt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return printTorrc(cmd, f.Listen, f.Line) },
	}, &f)
}

func printTorrc(cmd *cobra.Command, listen, file string) error {
	if at, err := netip.ParseAddrPort(listen); err != nil || at.Port() == 0 {
		return cli.Usage(&path.Error{What: "--listen", Why: fmt.Sprintf("%q is no address and port", listen), Hint: "such as 0.0.0.0:443 or [::]:443"})
	}
	var line string
	if file != "" {
		var err error
		if line, err = lineIn(file); err != nil {
			return err
		}
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if strings.ContainsAny(program, " \t") {
		return &path.Error{What: program, Why: "Tor cannot start a program whose path holds a space", Hint: "copy heddle to another directory"}
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), pt.Torrc(program, listen, line))
	return err
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
