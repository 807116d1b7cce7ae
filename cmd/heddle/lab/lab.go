// Package lab is `heddle lab`: worlds in network namespaces, and the experiments that run in them.
package lab

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/lab"
	"heddle/path"
)

// Command is `heddle lab`.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Build worlds of hosts, routers and emulated links, and measure in them",
		Long: `Build worlds of hosts, routers and emulated links on this machine, and measure
in them.

Hosts are network namespaces named heddle-NAME-HOST. Links are veth pairs, or
emulated with delay, rate, queue and loss by Heddle itself, which records how
late it was. Nothing of the machine's own network is touched. Needs root.`,
		Example: `  heddle lab up threeways
  heddle lab exec client -- ping -c 3 -I lte server.example
  heddle lab down threeways`,
	}
	cmd.AddCommand(newUpCommand(), newDownCommand(), newListCommand(), newWorldsCommand(),
		newExecCommand(), newCaptureCommand(), newCensorCommand(), newBenchCommand(), newSitesCommand(),
		newCollectCommand(), newPictureCommand(), newReadersCommand(), newTenantsCommand(), newRenderCommand(), newASimCommand(), newEmulateCommand())
	return cmd
}

func newUpCommand() *cobra.Command {
	var f struct {
		Name string `flag:"name" help:"name of this instance (default: the world's name)"`
	}
	return bind.Flags(&cobra.Command{
		Use:   "up WORLD",
		Short: "Make a world and leave it running",
		Long: `Make a world and leave it running. A process in the background runs its emulated
links until "heddle lab down". "heddle lab worlds" lists the worlds.

The worlds tor and tor-450ms come with a private Tor network, which takes half a
minute: three authorities, which are relays and exits, a web server, a bridge,
and a client for each way to the network. They need Debian's tor, and obfs4proxy
for the client that uses it.`,
		Example: `  heddle lab up threeways
  heddle lab up tor
  heddle lab up threeways --name second`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := lab.Find(args[0]); err != nil {
				return cli.Usage(err)
			}
			if err := lab.Supported(); err != nil {
				return err
			}
			name := cmp.Or(f.Name, args[0])
			if err := lab.Start(cmd.Context(), "lab", "emulate", args[0], "--name", name); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "world %s is up; enter a host: heddle lab exec HOST -- CMD; remove it: heddle lab down %[1]s\n%s", name, furnishing(args[0]).about)
			return nil
		},
	}, &f)
}

// newEmulateCommand is the process behind `heddle lab up`.
func newEmulateCommand() *cobra.Command {
	var f struct {
		Name string `flag:"name" help:"name of this instance"`
	}
	return bind.Flags(&cobra.Command{
		Use:    "emulate WORLD",
		Short:  "Run a world in the foreground, for heddle lab up",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			world, err := lab.Find(args[0])
			if err != nil {
				return cli.Usage(err)
			}
			return lab.Serve(cmd.Context(), world, lab.Options{Name: f.Name, Seed: uint64(time.Now().UnixNano())}, furnishing(args[0]).start)
		},
	}, &f)
}

func newDownCommand() *cobra.Command {
	var f struct {
		All bool `flag:"all" help:"all worlds, and what a crash left"`
	}
	return bind.Flags(&cobra.Command{
		Use:   "down [NAME]",
		Short: "Remove a world, or all of them, with what a crash left",
		Long: `Remove a world: the processes in its hosts, its links, its namespaces and its
files. With --all it removes every world that "heddle lab up" made and all that
a crash left; a world that a running program made for itself is left to it.`,
		Example: `  heddle lab down threeways
  heddle lab down --all`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.All == (len(args) == 1) {
				return cli.Usage(&path.Error{What: "lab down", Why: "it takes one NAME or --all", Hint: "heddle lab list"})
			}
			if !f.All {
				return lab.TakeDown(args[0])
			}
			removed, kept, err := lab.TakeDownAll()
			for _, name := range removed {
				fmt.Fprintln(cmd.ErrOrStderr(), "removed", name)
			}
			for _, name := range kept {
				fmt.Fprintf(cmd.ErrOrStderr(), "left %s to the running program that made it\n", name)
			}
			return err
		},
	}, &f)
}

// labListed is one line of `heddle lab list`. Its JSON fields are a stable interface.
type labListed struct {
	Name  string           `json:"name"`
	World string           `json:"world"`
	State string           `json:"state"` // "up", "starting" or "left by a crash"
	Since time.Time        `json:"since"`
	PID   int              `json:"pid"`
	Hosts []string         `json:"hosts"`
	Links []lab.LinkStatus `json:"links"`
}

func newListCommand() *cobra.Command {
	var f bind.Printing
	return bind.Flags(&cobra.Command{
		Use:   "list",
		Short: "List the worlds that are up",
		Long:  "List the worlds that are up, their hosts, and how late their emulated links were.",
		Example: `  heddle lab list
  heddle lab list --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := listWorlds()
			if err != nil {
				return err
			}
			if f.JSON {
				return cli.WriteJSON(cmd.OutOrStdout(), list)
			}
			return printWorlds(cmd.OutOrStdout(), list)
		},
	}, &f)
}

func listWorlds() ([]labListed, error) {
	states, err := lab.List()
	if err != nil {
		return nil, err
	}
	list := []labListed{}
	for _, s := range states {
		l := labListed{Name: s.Name, World: s.World.Name, State: "left by a crash", Since: s.Since, PID: s.Owner.PID, Hosts: []string{}}
		if s.Owner.Alive() {
			l.State = "starting"
			if s.Ready {
				l.State = "up"
			}
		}
		for _, h := range s.World.Hosts {
			l.Hosts = append(l.Hosts, h.Name)
		}
		if l.Links, err = lab.ReadLinkStatus(s.Name); err != nil {
			return nil, err
		}
		list = append(list, l)
	}
	return list, nil
}

func printWorlds(w io.Writer, list []labListed) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tWORLD\tSTATE\tPID\tHOSTS\tLATE (MEAN)")
	for _, l := range list {
		late := "-"
		var worst float64
		for _, link := range l.Links {
			worst = max(worst, link.Lateness.Mean)
			late = fmt.Sprintf("%.3f ms", worst)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%v\t%s\n", l.Name, l.World, l.State, l.PID, l.Hosts, late)
	}
	return table.Flush()
}

func newWorldsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "worlds",
		Short:   "List the worlds that can be made",
		Long:    "List the worlds that heddle lab up can make.",
		Example: "  heddle lab worlds",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, w := range lab.Worlds() {
				fmt.Fprintf(table, "%s\t%s\n", w.Name, w.About)
			}
			return table.Flush()
		},
	}
}

// onlyWorld returns the given name, or that of the only world that is up.
func onlyWorld(name string) (string, error) {
	if name != "" {
		return name, nil
	}
	states, err := lab.List()
	if err != nil {
		return "", err
	}
	var up []string
	for _, s := range states {
		if s.Background {
			up = append(up, s.Name)
		}
	}
	switch len(up) {
	case 0:
		return "", &path.Error{What: "lab", Why: "no world is up", Hint: "heddle lab up threeways"}
	case 1:
		return up[0], nil
	}
	return "", cli.Usage(&path.Error{What: "lab", Why: fmt.Sprintf("several worlds are up: %v", up), Hint: "say which with --name", Err: os.ErrInvalid})
}
