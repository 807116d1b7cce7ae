// Package mosh is `heddle mosh`. It starts the installed mosh-server on another machine by ssh, like mosh's wrapper
// script, and mosh-client here. A relay between them is transparent to both. It does not speak mosh's protocol: it only
// reads the line that says where mosh-server listens.
package mosh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/connect"
	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/config"
	"heddle/path"
	"heddle/split"
)

// session holds the arguments of `heddle mosh`.
type session struct {
	config.Paths
	server  Server
	Predict string `flag:"predict" help:"local echo: adaptive, always, never, experimental" complete:"adaptive always never experimental"`
	SSHVia  string `flag:"ssh-via" help:"the <NAME> of the path that ssh takes; by default the first path"`
	Name    string `flag:"name" help:"the name of the session in heddle status; by default mosh-HOST"`
	Log     string `flag:"log" help:"write the log to this <file>; without it, warnings are printed at the end"`
	DryRun  bool   `flag:"dry-run" help:"print what would be run, and run nothing"`
}

// Command is `heddle mosh`.
func Command() *cobra.Command {
	m := session{Paths: config.DefaultPaths(), Predict: Predictions[0], server: Server{Program: "mosh-server"}}
	cmd := &cobra.Command{
		Use:   "mosh [USER@]HOST --via NAME=KIND:ARG... [-- COMMAND...]",
		Short: "Split a Mosh session over several paths",
		Long: `Mosh starts mosh-server on HOST over ssh, as the program mosh does. It then
starts the installed mosh-client and splits its packets over the paths. Both
programs stay as they are, and the server needs nothing else. heddle status
shows the session while it runs.

Each path's network sees some of the packets, and no network sees all of them.
Each network still sees that you talk to the server. The whole ssh connection
takes one path: the first, or the one that --ssh-via names. The
network on that path sees an SSH connection to the same server. This machine's
resolver looks HOST up. The server sends to the path that it last heard from, so
its packets are split as often as mosh-client sends: ten times a second while
the screen changes.

With fewer healthy paths than --min-paths nothing is sent, and mosh-client says
that it heard nothing. The exit status is that of mosh-client.`,
		Example: `  heddle mosh user@server.example --via home=if:eth0 --via lte=if:wwan0
  heddle mosh server.example --via home=if:eth0 --via lte=if:wwan0 --ssh-via lte -- tmux attach`,
		Args: moshArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			m.server.Host, m.server.Command = args[0], args[1:]
			if err := m.check(); err != nil {
				return cli.Usage(err)
			}
			if m.DryRun {
				return m.print(cmd.Context(), cmd.OutOrStdout())
			}
			terminal, err := terminalOf(cmd)
			if err != nil {
				return err
			}
			return m.run(cmd.Context(), terminal, cmd.ErrOrStderr())
		},
	}
	bind.Flags(cmd, &m)
	bind.Flags(cmd, &m.server)
	_ = cmd.MarkFlagRequired("via")
	return cmd
}

// moshArguments accepts one host, and a command after "--".
func moshArguments(cmd *cobra.Command, args []string) error {
	before := cmd.ArgsLenAtDash()
	if before < 0 {
		before = len(args)
	}
	switch {
	case before > 1:
		return cli.Usage(&path.Error{What: "heddle mosh", Why: fmt.Sprintf("%q comes after the host", args[1]),
			Hint: "put -- before the command that is to run there"})
	case before < 1:
		return errors.New("no host")
	}
	return nil
}

// check returns an error for a wrong command line.
func (m *session) check() error {
	host := m.server.Host
	if _, h, found := strings.Cut(host, "@"); host == "" || host[0] == '-' || found && h == "" || strings.ContainsAny(host, " \t\r\n") {
		return &path.Error{What: fmt.Sprintf("host %q", host), Why: "it is no [USER@]HOST", Hint: "such as user@server.example"}
	}
	if m.server.SSHPort < 0 || m.server.SSHPort > 65535 {
		return &path.Error{What: "--ssh-port", Why: fmt.Sprintf("%d is no port", m.server.SSHPort), Hint: "1 to 65535; sshd's own is 22"}
	}
	if m.server.Port != "" && !goodRange(m.server.Port) {
		return &path.Error{What: "--port " + m.server.Port, Why: "it is no PORT or LOW:HIGH", Hint: "such as 60001 or 60000:61000"}
	}
	if !slices.Contains(Predictions, m.Predict) {
		return &path.Error{What: "--predict " + m.Predict, Why: "mosh-client has no such mode", Hint: "modes: " + strings.Join(Predictions, ", ")}
	}
	if m.Name != "" {
		if err := config.CheckSessionName(m.Name); err != nil {
			return err
		}
	}
	o, err := m.Options()
	if err != nil {
		return err
	}
	if m.SSHVia == "" {
		m.SSHVia = o.Via[0].Name
	}
	if _, err := connect.DialerOf(o, m.SSHVia); err != nil {
		return err
	}
	return m.proxy(o)
}

// goodRange reports whether a text is PORT or LOW:HIGH.
func goodRange(text string) bool {
	low, high, ranged := strings.Cut(text, ":")
	first, err := strconv.ParseUint(low, 10, 16)
	if err != nil || first == 0 || !ranged {
		return err == nil && first > 0
	}
	last, err := strconv.ParseUint(high, 10, 16)
	return err == nil && first <= last
}

// proxy makes ssh connect by one path and those that it rides.
func (m *session) proxy(o split.Options) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	m.server.Proxy = []string{self, "connect", "--announce"}
	if m.Identity != "" {
		m.server.Proxy = append(m.server.Proxy, "--identity", m.Identity)
	}
	all := slices.Concat(o.Via, o.Beside)
	flag, name := "--via", m.SSHVia
	for name != "" {
		for _, s := range m.Secret {
			if strings.HasPrefix(s, name+"=") {
				m.server.Proxy = append(m.server.Proxy, "--secret", s)
			}
		}
		spec := all[slices.IndexFunc(all, func(s path.Spec) bool { return s.Name == name })]
		m.server.Proxy = append(m.server.Proxy, flag, spec.String())
		flag, name = "--path", spec.Base
	}
	return nil
}

// terminalOf returns the terminal for mosh-client.
func terminalOf(cmd *cobra.Command) (files [3]*os.File, err error) {
	streams := []any{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()}
	for i, s := range streams {
		f, ok := s.(*os.File)
		if !ok || i < 2 && !cli.IsTerminal(f) {
			return files, &path.Error{What: "mosh", Why: "stdin and stdout must be a terminal", Hint: "for a single command without one, ssh is enough"}
		}
		files[i] = f
	}
	return files, nil
}

// print prints the commands without running them.
func (m *session) print(ctx context.Context, out io.Writer) error {
	m.localize(ctx)
	_, err := fmt.Fprintf(out, "ssh %s\nrelay from 127.0.0.1 to the address that ssh reached and the port that mosh-server names: %s every %s over %s\n"+
		"mosh-client 127.0.0.1 PORT, with MOSH_KEY from mosh-server in its environment\n",
		Quote(m.server.SSH()), m.Schedule, m.Every, strings.Join(m.Via, ", "))
	return err
}

// localize sets what the server must know of this terminal.
func (m *session) localize(ctx context.Context) {
	m.server.Colors, m.server.Locale = Colors(ctx), Locale()
}
