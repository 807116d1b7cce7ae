// Package observe is `heddle observe`: what each observer saw, from captures.
package observe

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/observe"
	"heddle/path"
)

// Command is `heddle observe`.
func Command() *cobra.Command {
	command := &cobra.Command{
		Use:   "observe",
		Short: "Say what each network saw, from captures",
		Long: `Read captures (pcap or pcapng), one for each place in the network, and say what
an observer at each of them could count and read.`,
		Example: "  heddle observe report captures",
	}
	command.AddCommand(newReportCommand(), newTraceCommand(), newReconstructCommand())
	return command
}

// clientFlags are those of commands that have to know the client.
type clientFlags struct {
	Client []string `flag:"client" help:"the client's <ADDRESS>, or a network such as 10.0.0.0/8; may be repeated\n(default: what the captures say, else the likely one)"`
}

type reportFlags struct {
	bind.Printing
	clientFlags
	HTML     string   `flag:"html" help:"also write a self-contained page to this <FILE>"`
	Baseline []string `flag:"baseline" help:"put the captures of another way to hold the session beside it, as <LABEL=DIR>; may be repeated"`
	Label    string   `flag:"label" help:"what to call the session (default: the directory's name)"`
}

func newReportCommand() *cobra.Command {
	var f reportFlags
	return bind.Flags(&cobra.Command{
		Use:   "report DIR",
		Short: "Report the exposure of each observer",
		Long: `Report what each observer could count and read: packets, bytes, the share of the
session each way, the longest run of consecutive packets, for how long it
watched, protocols, servers, names and content in clear.

Each .pcapng, .pcap or .cap file in DIR is one observer, called by the file's
name. A subdirectory is one observer too, who holds all the captures in it. DIR
may also be one capture file.

Claim: the figures come from the captures alone. They do not say what an
observer could infer from the pattern of sizes and times.`,
		Example: "  heddle up office.conf --via home=if:eth0 --via lte=if:wwan0 --capture captures\n" +
			"  heddle observe report captures\n" +
			"  heddle observe report captures --html report.html --baseline 'WireGuard alone=captures-plain'\n" +
			"  heddle observe report captures --client 192.0.2.7 --json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return observeReport(cmd, args[0], f) },
	}, &f)
}

func observeReport(cmd *cobra.Command, dir string, f reportFlags) error {
	session, err := loadSession(f.Label, dir, f.Client)
	if err != nil {
		return err
	}
	var baselines []*observe.Session
	for _, b := range f.Baseline {
		label, at, found := strings.Cut(b, "=")
		if !found || label == "" || at == "" {
			return cli.Usage(&path.Error{What: fmt.Sprintf("--baseline %q", b), Why: "it is not LABEL=DIR",
				Hint: "for example --baseline plain=captures-plain"})
		}
		other, err := loadSession(label, at, f.Client)
		if err != nil {
			return err
		}
		baselines = append(baselines, other)
	}
	if f.HTML != "" {
		err := writeFile("page "+f.HTML, f.HTML, 0o666, func(w io.Writer) error { return observe.WriteHTML(w, session, baselines...) })
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.ErrOrStderr(), "wrote", f.HTML)
	}
	report := observe.Compare(session, baselines...)
	if f.JSON {
		return cli.WriteJSON(cmd.OutOrStdout(), report)
	}
	return observe.WriteText(cmd.OutOrStdout(), report, cli.TerminalWidth(cmd.OutOrStdout()))
}

func loadSession(label, dir string, clients []string) (*observe.Session, error) {
	known, err := cli.Networks(clients)
	if err == nil && label == "" {
		label, err = labelOf(dir)
	}
	if err != nil {
		return nil, err
	}
	return observe.Load(label, dir, observe.Options{Clients: known})
}

func labelOf(dir string) (string, error) {
	absolute, err := filepath.Abs(dir)
	return filepath.Base(absolute), err
}

// writeFile writes a new file; what names it in errors.
func writeFile(what, name string, perm fs.FileMode, write func(io.Writer) error) error {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, perm)
	if err == nil {
		err = errors.Join(write(file), file.Close())
	}
	if err != nil {
		return &path.Error{What: what, Err: err}
	}
	return nil
}
