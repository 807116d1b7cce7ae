// Package asn is `heddle asn`: the table of the network that each address belongs to.
package asn

import (
	"fmt"
	"io"
	"net/netip"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/overlay/asn"
	"heddle/path"
)

// Command is `heddle asn`.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "asn",
		Short: "Know which network an address belongs to, from a table on this machine",
		Long: `Asn keeps a table of which autonomous system (AS) an address belongs to, and in
which country it is, for "heddle overlay". The table lies on this machine, so
nobody learns what is looked up. It is made from files that others publish.`,
		Example: `  heddle asn import asn-ipv4.csv asn-ipv6.csv
  heddle asn lookup 192.0.2.1
  heddle asn show`,
	}
	cmd.AddCommand(importCommand(), lookupCommand(), showCommand())
	return cmd
}

// tableFlags are those of all commands on the table.
type tableFlags struct {
	bind.Printing
	Table string `flag:"table" help:"the <FILE> of the table; asn.table in Heddle's settings if not given"`
}

func importCommand() *cobra.Command {
	var f struct {
		tableFlags
		Origin  string `flag:"origin" help:"where the data came from, in your <WORDS>"`
		Licence string `flag:"licence" help:"the data's licence, in your <WORDS>"`
		Dated   string `flag:"dated" help:"when the data was made, a <DATE> such as 2026-06-17"`
	}
	return bind.Flags(&cobra.Command{
		Use:   "import FILE...",
		Short: "Take files into the table",
		Long: `Import takes files into the table, which keeps where each came from, under which
licence and how old it is. What was there of the same kind and IP version is
replaced, the rest stays. Where a file has a mistake, all stays as it was.

A FILE is one of these, also packed by gzip:
  CSV of ip-location-db: first address, last address, then AS and name, or a
    country of two letters; the npm packages @ip-location-db/asn and
    @ip-location-db/asn-country have such files
  pfx2as of CAIDA: prefix, length, AS
  MMDB (MaxMind DB) with ASes or countries, such as GeoLite2-ASN.mmdb`,
		Example: `  heddle asn import asn-ipv4.csv asn-ipv6.csv
  heddle asn import routeviews-rv2-20260617-1200.pfx2as.gz --licence "CAIDA AUA"
  heddle asn import GeoLite2-Country.mmdb`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := asn.ImportOptions{Origin: f.Origin, Licence: f.Licence, Now: time.Now().Truncate(time.Second)}
			if f.Dated != "" {
				var err error
				if o.Dated, err = time.Parse(time.DateOnly, f.Dated); err != nil {
					return cli.Usage(&path.Error{What: "--dated " + f.Dated, Why: "it is no date", Hint: "write it as 2026-06-17"})
				}
			}
			file, err := asn.FileOr(f.Table)
			if err != nil {
				return err
			}
			made, err := asn.Import(file, args, o)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "asn: the table is", file)
			return printSources(cmd.OutOrStdout(), made, o.Now, f.JSON)
		},
	}, &f)
}

func lookupCommand() *cobra.Command {
	var f tableFlags
	return bind.Flags(&cobra.Command{
		Use:   "lookup ADDRESS...",
		Short: "Say which network addresses belong to",
		Long: `Lookup says which autonomous system each address belongs to, and in which
country it is, as far as the table knows. It asks nobody.`,
		Example: "  heddle asn lookup 192.0.2.1 2001:db8::1\n  heddle asn lookup 192.0.2.1 --json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			addrs := make([]netip.Addr, len(args))
			for i, text := range args {
				var err error
				if addrs[i], err = netip.ParseAddr(text); err != nil {
					return cli.Usage(&path.Error{What: fmt.Sprintf("%q", text), Why: "it is no IP address", Hint: "write 192.0.2.1 or 2001:db8::1"})
				}
			}
			t, err := asn.OpenOr(f.Table)
			if err != nil {
				return err
			}
			entries := []asn.Entry{}
			for _, a := range addrs {
				entries = append(entries, t.Lookup(a))
			}
			if f.JSON {
				return cli.WriteJSON(cmd.OutOrStdout(), entries)
			}
			out := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(out, "ADDRESS\tAS\tNAME\tRANGE\tCOUNTRY")
			for _, e := range entries {
				as, span := "-", "-"
				if e.AS != 0 {
					as, span = e.AS.String(), fmt.Sprintf("%v-%v", e.First, e.Last)
				}
				fmt.Fprintf(out, "%v\t%s\t%s\t%s\t%s\n", e.Addr, as, cli.OrDash(e.Name), span, cli.OrDash(e.Country))
			}
			return out.Flush()
		},
	}, &f)
}

func showCommand() *cobra.Command {
	var f tableFlags
	return bind.Flags(&cobra.Command{
		Use:     "show",
		Short:   "Say what the table was made from, and how old it is",
		Long:    "Show says what the table was made from: file, origin, licence, age and size.",
		Example: "  heddle asn show\n  heddle asn show --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := asn.OpenOr(f.Table)
			if err != nil {
				return err
			}
			return printSources(cmd.OutOrStdout(), t, time.Now(), f.JSON)
		},
	}, &f)
}

func printSources(w io.Writer, t *asn.Table, now time.Time, asJSON bool) error {
	if asJSON {
		return cli.WriteJSON(w, t.Sources())
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "KIND\tIP\tRANGES\tAGE\tFILE\tORIGIN\tLICENCE")
	for _, s := range t.Sources() {
		age := cli.AgeText(s.Age(now))
		if s.Dated.IsZero() {
			age = "at least " + age
		}
		fmt.Fprintf(out, "%s\t%d\t%d\t%s\t%s\t%s\t%s\n", s.Kind, s.Family, s.Ranges, age, s.File, cli.OrDash(s.Origin), cli.OrDash(s.Licence))
	}
	return out.Flush()
}
