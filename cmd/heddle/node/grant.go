package node

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/identity"
	"heddle/internal/text"
	"heddle/overlay/client"
	"heddle/overlay/node"
	"heddle/path"
)

// nodeGrant holds the flags of `heddle node grant`.
type nodeGrant struct {
	Until    string   `flag:"until" help:"when it ends: a <TIME> such as 2027-01-31T00:00:00Z, or how long from now, such as 720h"`
	From     string   `flag:"from" help:"when it begins: a <TIME>, or how long from now; now where it is not given"`
	Bytes    string   `flag:"bytes" help:"how many bytes in all, such as 10GiB or 500MB; 0 is no limit"`
	To       []string `flag:"to" help:"a <DESTINATION>: CIDR[:PORT] or NAME:PORT"`
	Mode     []string `flag:"mode" help:"what for: {modes}" list:"commas"`
	Node     []string `flag:"node" help:"the <KEY> of a node that it is for; every node that trusts this key where none is given"`
	Name     string   `flag:"name" help:"print a pass for the node, under this <NAME>"`
	Address  []string `flag:"address" help:"where the holder reaches the node, <HOST:PORT>, for a pass"`
	Identity string   `flag:"identity" help:"the <FILE> of the key to sign with" complete:"file"`
}

func newGrantCommand() *cobra.Command {
	g := nodeGrant{Bytes: "0", Mode: []string{client.ModeForward}}
	cmd := &cobra.Command{
		Use:   "grant HOLDER --until TIME",
		Short: "Let the holder of a key use a node: until when, how much, where to",
		Long: `Grant signs with this device's key that the holder of another key may use
nodes, and prints it. Nodes take it that trust this device's key: see --grantor
of heddle node run. HOLDER is what heddle node key prints on the holder's
device.

With --name and --address it prints a pass: all that the holder needs, for
heddle node add. Neither the grant nor the pass is a secret, since others than
the holder can do nothing with it.

Without --to it leads to public addresses only. A private, local or otherwise
special address must be named: 10.1.2.3:22, or a network no wider than it is,
such as 10.0.0.0/8; an address of the node itself alone. Bytes are counted in
both directions, by each node for itself.`,
		Example: `  heddle node grant ed25519:HOLDER --until 720h --bytes 100GiB
  heddle node grant ed25519:HOLDER --until 2027-01-31T00:00:00Z --to 10.1.2.3:22 --name tokyo --node ed25519:KEY --address 192.0.2.9:7443 > tokyo.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			signed, err := g.issue(args[0], time.Now())
			if err != nil {
				return err
			}
			if g.Name == "" {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), signed)
				return err
			}
			pass := client.Pass{Name: g.Name, Key: signed.Grant.Nodes[0], Addresses: g.Address, Grant: signed}
			if err := cli.UsageBy(cmd, pass.Check()); err != nil {
				return err
			}
			return cli.WriteJSON(cmd.OutOrStdout(), pass)
		},
	}
	bind.Flags(cmd, &g)
	_ = cmd.MarkFlagRequired("until")
	cmd.MarkFlagsRequiredTogether("name", "address")
	return cmd
}

// issue signs the grant that the flags describe.
func (g *nodeGrant) issue(holder string, now time.Time) (client.Signed, error) {
	none := client.Signed{}
	grant := client.Grant{To: g.To, Modes: g.Mode, From: now}
	var err error
	if grant.Holder, err = identity.ParseKey(holder); err != nil {
		return none, cli.Usage(&path.Error{What: "HOLDER", Why: err.Error(), Hint: "`heddle node key` prints it on the holder's device"})
	}
	for _, text := range g.Node {
		key, err := identity.ParseKey(text)
		if err != nil {
			return none, cli.Usage(&path.Error{What: "--node", Why: err.Error(), Hint: "`heddle node key` prints it on the node"})
		}
		grant.Nodes = append(grant.Nodes, key)
	}
	if g.Name != "" && len(grant.Nodes) != 1 {
		return none, cli.Usage(&path.Error{What: "--name", Why: "a pass is for one node", Hint: "name its key with --node, once"})
	}
	if grant.Until, err = parseMoment(g.Until, now); err != nil {
		return none, cli.Usage(&path.Error{What: "--until", Why: err.Error()})
	}
	if g.From != "" {
		if grant.From, err = parseMoment(g.From, now); err != nil {
			return none, cli.Usage(&path.Error{What: "--from", Why: err.Error()})
		}
	}
	if grant.Bytes, err = text.ParseSize(g.Bytes); err != nil {
		return none, cli.Usage(&path.Error{What: "--bytes", Why: err.Error()})
	}
	id, err := identity.LoadOr(g.Identity)
	if err != nil {
		return none, err
	}
	signed, err := client.Issue(id, grant)
	if err != nil {
		return none, cli.Usage(&path.Error{What: "grant", Why: err.Error()})
	}
	return signed, nil
}

// parseMoment parses a time, or a duration from now.
func parseMoment(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time: write 2027-01-31T00:00:00Z, 2027-01-31, or 720h for so long from now", text)
}

func newRevokeCommand() *cobra.Command {
	var f struct {
		Revoked  string `flag:"revoked" help:"the node's list, a <FILE>; revoked beside the identity where it is not given"`
		Identity string `flag:"identity" help:"the <FILE> of the node's private key"`
		Why      string `flag:"why" help:"a remark for the list"`
	}
	return bind.Flags(&cobra.Command{
		Use:   "revoke ID | HOLDER",
		Short: "Have a node not take a grant any more, or none of a holder's",
		Long: `Revoke adds the id of a grant, or the key of a holder for all grants of that
holder, to the node's list. A node that runs reads it within seconds, and ends
what goes on by them. It holds for the node whose list it is: run it on each
node that takes the grant.`,
		Example: "  heddle node revoke 0123456789abcdef0123456789abcdef --why \"left the company\"\n  heddle node revoke ed25519:HOLDER --revoked /etc/heddle/revoked",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.Revoked == "" {
				name, err := identity.FileOr(f.Identity)
				if err != nil {
					return err
				}
				f.Revoked = nodeDefaults.RevokedFile(name)
			}
			if err := node.Revoke(f.Revoked, args[0], f.Why); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "node: revoked in %s, for the node that reads it\n", f.Revoked)
			return nil
		},
	}, &f)
}
