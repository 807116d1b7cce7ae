package pseudonym

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/path"
	"heddle/pseudonym/cloud"
	"heddle/pseudonym/zone"
)

// zoneFlags are those of `heddle pseudonym zone`.
type zoneFlags struct {
	DS     bool   `flag:"ds" help:"print the DS record for the parent zone"`
	Update string `flag:"update" help:"keep the records at another nameserver up to date, <HOST[:PORT]>"`
	Key    string `flag:"key" help:"the <FILE> of the key that may update the zone there" complete:"file"`
}

func newZoneCommand() *cobra.Command {
	var f zoneFlags
	return bind.Flags(&cobra.Command{
		Use:   "zone FILE",
		Short: "Give a cloud's zone to another nameserver",
		Long: `Zone prints the records of a cloud's zone, for a nameserver such as BIND, Knot
or PowerDNS in place of the one of serve. All pseudonyms are one wildcard, so
the records change only with the gateways, and once a day with the key by which
clients encrypt the name that they ask for. Let the nameserver sign the records
with keys of its own.

With --update it sends the addresses and HTTPS records to such a nameserver
instead (RFC 2136), whenever they change, until it is interrupted. The zone has
to be there, with SOA and NS records of its own. --key is a file of
tsig-keygen, or has ALGORITHM:NAME:SECRET.

With --ds it prints what the parent zone needs, so that resolvers trust the
signatures of serve's own nameserver (DNSSEC).`,
		Example: `  heddle pseudonym zone cloud.toml > /etc/bind/cloud.example.zone
  heddle pseudonym zone cloud.toml --update 192.0.2.53 --key /etc/heddle/cloud/update.key
  heddle pseudonym zone cloud.toml --ds`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.DS && f.Update != "":
				return cli.Usage(&path.Error{What: "--ds", Why: "the other nameserver signs with keys of its own", Hint: "ask that one for its DS record"})
			case (f.Update == "") != (f.Key == ""):
				return cli.Usage(&path.Error{What: "--update", Why: "it goes with --key", Hint: "give both: --update SERVER --key FILE"})
			}
			c, o, err := loadCloud(cmd, args[0])
			if err != nil {
				return err
			}
			if f.Update != "" {
				return updateZone(cmd, o, f)
			}
			if !f.DS {
				s, err := cloud.Zone(cmd.Context(), o)
				if err != nil {
					return err
				}
				return s.Write(cmd.OutOrStdout())
			}
			text, err := cloud.DS(o)
			if err == nil && text == "" {
				err = &path.Error{What: "the zone " + c.Zone, Why: "it is not signed", Hint: "heddle pseudonym init makes " + cloud.ZoneKey + " for a new cloud"}
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		},
	}, &f)
}

func updateZone(cmd *cobra.Command, o cloud.Options, f zoneFlags) error {
	key, err := zone.ReadKey(f.Key)
	if err != nil {
		return err
	}
	server := f.Update
	if _, _, err := net.SplitHostPort(server); err != nil {
		server = net.JoinHostPort(server, "53")
	}
	return cloud.UpdateZone(cmd.Context(), o, func(ctx context.Context, s *zone.Server) error {
		if err := s.Update(ctx, server, key); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.ErrOrStderr(), "pseudonym: the nameserver %s has the records of %s\n", server, o.Zone)
		return err
	})
}
