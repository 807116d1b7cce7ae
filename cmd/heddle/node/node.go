// Package node is `heddle node`: running an overlay node, or using one.
package node

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/identity"
	"heddle/overlay/client"
	"heddle/path"
)

// Command is `heddle node`.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Be an overlay node, or use one",
		Long: `Node has what the owner of an overlay node needs, and what its users need. A
node connects to servers for those who hold a grant, and for nobody else. For
its users it is a path: NAME=node:NAME.

Each device and node is known by its key. A grant is bound to the key of its
holder, so neither it nor the pass that it travels in is a secret.`,
		Example: `  heddle node key
  heddle node run --grantor ed25519:KEY
  heddle node grant ed25519:HOLDER --until 720h --name tokyo --node ed25519:KEY --address 192.0.2.9:7443 > tokyo.json
  heddle node add tokyo.json`,
	}
	cmd.AddCommand(newRunCommand(), newKeyCommand(), newGrantCommand(), newRevokeCommand(), newStatusCommand(),
		newAddCommand(), newListCommand())
	return cmd
}

func newKeyCommand() *cobra.Command {
	var f struct {
		Identity string `flag:"identity" help:"the <FILE> of the private key" complete:"file"`
	}
	return bind.Flags(&cobra.Command{
		Use:   "key [--identity FILE]",
		Short: "Print this device's key, and make it if there is none",
		Long: `Key prints the public key of this device or node. It makes a new private key if
there is none, in a file that only its owner can read.`,
		Example: "  heddle node key\n  heddle node key --identity /etc/heddle/identity.pem",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := identity.FileOr(f.Identity)
			if err != nil {
				return err
			}
			id, created, err := identity.LoadOrCreate(name)
			if err != nil {
				return err
			}
			if created {
				fmt.Fprintf(cmd.ErrOrStderr(), "node: made a new identity in %s\n", name)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), id.Key())
			return err
		},
	}, &f)
}

func newAddCommand() *cobra.Command {
	var f struct {
		Name     string `flag:"name" help:"keep it under another <NAME>"`
		Identity string `flag:"identity" help:"the <FILE> of this device's private key"`
	}
	return bind.Flags(&cobra.Command{
		Use:   "add FILE",
		Short: "Keep a pass, so that node:NAME is a path",
		Long: `Add checks a pass that a node's owner made with heddle node grant, and keeps it
with this user's settings. From then on node:NAME is a path.`,
		Example: "  heddle node add tokyo.json\n  heddle node add tokyo.json --name tokyo2",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pass, err := addPass(args[0], f.Name, f.Identity)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s=node:%s\n", pass.Name, pass.Name)
			return err
		},
	}, &f)
}

func addPass(file, name, identityFile string) (client.Pass, error) {
	if !client.IsFile(file) {
		file = "./" + file
	}
	pass, err := client.LoadPass(file)
	if err != nil {
		return pass, err
	}
	if name != "" {
		pass.Name = name
	}
	id, err := identity.LoadOr(identityFile)
	if err != nil {
		return pass, err
	}
	if !pass.Grant.IsZero() && pass.Grant.Grant.Holder != id.Key() {
		return pass, &path.Error{What: "pass for " + pass.Name, Why: fmt.Sprintf("its grant is for the key %v, and this device's is %v", pass.Grant.Grant.Holder, id.Key()),
			Hint: "ask the node's owner for a grant for this device's key"}
	}
	if until := pass.Grant.Grant.Until; !pass.Grant.IsZero() && !time.Now().Before(until) {
		return pass, &path.Error{What: "pass for " + pass.Name, Why: "by this device's clock its grant ended on " + until.Local().Format(time.DateTime), Hint: "ask the node's owner for a new one, or set this device's clock"}
	}
	dir, err := client.Dir()
	if err != nil {
		return pass, err
	}
	_, err = pass.Save(dir)
	return pass, err
}

func newListCommand() *cobra.Command {
	var f bind.Printing
	return bind.Flags(&cobra.Command{
		Use:   "list",
		Short: "List the passes of this user",
		Long: `List prints the nodes that this user has passes for, and until when. It asks
no node.`,
		Example: "  heddle node list\n  heddle node list --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := client.Dir()
			if err != nil {
				return err
			}
			list, err := client.Passes(dir)
			if f.JSON {
				return errors.Join(cli.WriteJSON(cmd.OutOrStdout(), listed(list)), err)
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "NAME\tKEY\tADDRESS\tUNTIL\tFOR")
			for _, p := range listed(list) {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", p.Name, p.Key.Short(), firstOf(p.Addresses), untilText(p.Until), strings.Join(p.Modes, ", "))
			}
			return errors.Join(table.Flush(), err)
		},
	}, &f)
}

// listedPass is a pass as `heddle node list --json` prints it.
type listedPass struct {
	Name      string       `json:"name"`
	Key       identity.Key `json:"key"`
	Addresses []string     `json:"addresses"`
	Grant     string       `json:"grant,omitempty"` // its id
	Until     time.Time    `json:"until,omitzero"`
	Modes     []string     `json:"modes,omitempty"`
	To        []string     `json:"to,omitempty"`
	Bytes     int64        `json:"bytes,omitempty"`
}

func listed(passes []client.Pass) []listedPass {
	list := make([]listedPass, 0, len(passes))
	for _, p := range passes {
		g := p.Grant.Grant
		list = append(list, listedPass{Name: p.Name, Key: p.Key, Addresses: p.Addresses, Grant: g.ID, Until: g.Until, Modes: g.Modes, To: g.To, Bytes: g.Bytes})
	}
	return list
}

func firstOf(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
