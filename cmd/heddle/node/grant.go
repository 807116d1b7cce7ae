package node

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/cli"
	"heddle/identity"
	"heddle/internal/text"
	"heddle/overlay/client"
	"heddle/overlay/node"
	"heddle/path"
)

// nodeGrant holds the flags of `heddle node grant`.
type nodeGrant struct {
	identity, from, until, bytes, name string
	nodes, addresses, to, modes        []string
}

func newGrantCommand() *cobra.Command {
	g := nodeGrant{modes: []string{client.ModeForward}}
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
			if g.name == "" {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), signed)
				return err
			}
			pass := client.Pass{Name: g.name, Key: signed.Grant.Nodes[0], Addresses: g.addresses, Grant: signed}
			if err := cli.UsageBy(cmd, pass.Check()); err != nil {
				return err
			}
			return cli.WriteJSON(cmd.OutOrStdout(), pass)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&g.until, "until", "", "when it ends: a `TIME` such as 2027-01-31T00:00:00Z, or how long from now, such as 720h")
	flags.StringVar(&g.from, "from", "", "when it begins: a `TIME`, or how long from now; now where it is not given")
	flags.StringVar(&g.bytes, "bytes", "0", "how many bytes in all, such as 10GiB or 500MB; 0 is no limit")
	flags.StringArrayVar(&g.to, "to", nil, "a `DESTINATION`: CIDR[:PORT] or NAME:PORT")
	flags.StringSliceVar(&g.modes, "mode", g.modes, "what for: "+strings.Join(client.Modes(), ", "))
	flags.StringArrayVar(&g.nodes, "node", nil, "the `KEY` of a node that it is for; every node that trusts this key where none is given")
	flags.StringVar(&g.name, "name", "", "print a pass for the node, under this `NAME`")
	flags.StringArrayVar(&g.addresses, "address", nil, "where the holder reaches the node, `HOST:PORT`, for a pass")
	flags.StringVar(&g.identity, "identity", "", "the `FILE` of the key to sign with")
	_ = cmd.MarkFlagRequired("until")
	_ = cmd.MarkFlagFilename("identity")
	cmd.MarkFlagsRequiredTogether("name", "address")
	return cmd
}

// issue signs the grant that the flags describe.
func (g *nodeGrant) issue(holder string, now time.Time) (client.Signed, error) {
	none := client.Signed{}
	grant := client.Grant{To: g.to, Modes: g.modes, From: now}
	var err error
	if grant.Holder, err = identity.ParseKey(holder); err != nil {
		return none, cli.Usage(&path.Error{What: "HOLDER", Why: err.Error(), Hint: "`heddle node key` prints it on the holder's device"})
	}
	for _, text := range g.nodes {
		key, err := identity.ParseKey(text)
		if err != nil {
			return none, cli.Usage(&path.Error{What: "--node", Why: err.Error(), Hint: "`heddle node key` prints it on the node"})
		}
		grant.Nodes = append(grant.Nodes, key)
	}
	if g.name != "" && len(grant.Nodes) != 1 {
		return none, cli.Usage(&path.Error{What: "--name", Why: "a pass is for one node", Hint: "name its key with --node, once"})
	}
	if grant.Until, err = parseMoment(g.until, now); err != nil {
		return none, cli.Usage(&path.Error{What: "--until", Why: err.Error()})
	}
	if g.from != "" {
		if grant.From, err = parseMoment(g.from, now); err != nil {
			return none, cli.Usage(&path.Error{What: "--from", Why: err.Error()})
		}
	}
	if grant.Bytes, err = text.ParseSize(g.bytes); err != nil {
		return none, cli.Usage(&path.Error{What: "--bytes", Why: err.Error()})
	}
	id, err := identity.LoadOr(g.identity)
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
	var revoked, file, why string
	cmd := &cobra.Command{
		Use:   "revoke ID | HOLDER",
		Short: "Have a node not take a grant any more, or none of a holder's",
		Long: `Revoke adds the id of a grant, or the key of a holder for all grants of that
holder, to the node's list. A node that runs reads it within seconds, and ends
what goes on by them. It holds for the node whose list it is: run it on each
node that takes the grant.`,
		Example: "  heddle node revoke 0123456789abcdef0123456789abcdef --why \"left the company\"\n  heddle node revoke ed25519:HOLDER --revoked /etc/heddle/revoked",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if revoked == "" {
				name, err := identity.FileOr(file)
				if err != nil {
					return err
				}
				revoked = nodeDefaults.RevokedFile(name)
			}
			if err := node.Revoke(revoked, args[0], why); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "node: revoked in %s, for the node that reads it\n", revoked)
			return nil
		},
	}
	cmd.Flags().StringVar(&revoked, "revoked", "", "the node's list, a `FILE`; revoked beside the identity where it is not given")
	cmd.Flags().StringVar(&file, "identity", "", "the `FILE` of the node's private key")
	cmd.Flags().StringVar(&why, "why", "", "a remark for the list")
	return cmd
}
