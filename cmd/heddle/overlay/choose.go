package overlay

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"heddle/internal/text"
	"heddle/overlay/asn"
	"heddle/overlay/client"
	"heddle/overlay/survey"
	"heddle/path"
	"heddle/path/diversity"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
)

// overlayChoose holds the flags of heddle overlay choose.
type overlayChoose struct {
	planFlags
	MaxAge       time.Duration `flag:"max-age" help:"do not use measurements older than this"`
	Paths        int           `flag:"paths" help:"how many paths to choose"`
	AvoidAS      []string      `flag:"avoid-as" help:"no path through these <NETWORKS>, such as AS64500" list:"commas"`
	AvoidCountry []string      `flag:"avoid-country" help:"no path through these <COUNTRIES>, ISO codes of two letters" list:"commas"`
	Degrade      bool          `flag:"degrade" help:"accept networks that see two paths, and hops that may be ones to avoid"`
}

func newChooseCommand() *cobra.Command {
	f := overlayChoose{MaxAge: 24 * time.Hour, Paths: 2}
	return bind.Flags(&cobra.Command{
		Use:   "choose DESTINATION",
		Short: "Choose nodes and uplinks that the fewest networks see together",
		Long: `Choose uses the measurements of "heddle overlay survey". It chooses --paths of
the paths to DESTINATION, each through a node of its own, and minimises the
number of networks (ASes) that two chosen paths share, over all pairs and both
halves. Among equals it prefers more uplinks, then fewer hidden hops, then the
fastest. It does not count the destination's own network, which sees all paths.
It sends nothing.

If a network sees two of the paths, it names the network and fails, so that a
script does not continue unaware. --degrade accepts that.

It promises nothing beyond the answers of routers. Networks may belong to one
owner, share a cable, or not answer; nodes may lie about their half.`,
		Example: `  heddle overlay choose 192.0.2.1:443 --paths 3
  heddle overlay choose 192.0.2.1:443 --via home=if:eth0 --via lte=if:wwan0
  heddle overlay choose 192.0.2.1:443 --avoid-as AS64500 --avoid-country XX --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}, &f)
}

// chosen is the answer of heddle overlay choose. Its JSON fields are a stable interface.
type chosen struct {
	To      string `json:"to"`
	Diverse bool   `json:"diverse"` // no network but the destination's is known to see two paths
	diversity.Choice
	RTT   map[string]float64      `json:"rtt_ms"` // by path name, if known
	Names map[diversity.AS]string `json:"names"`  // of the ASes that occur
	// SurveyAge is the age of the oldest measurement used, TableAge that of the oldest part of the table, in seconds.
	SurveyAge int64    `json:"survey_age_s"`
	TableAge  int64    `json:"table_age_s"`
	Flags     []string `json:"flags"` // for other commands, to take these paths
}

func (f *overlayChoose) run(cmd *cobra.Command, destination string) error {
	o, err := f.options()
	if err != nil {
		return cli.Usage(err)
	}
	table, err := asn.OpenOr(f.Table)
	if err != nil {
		return err
	}
	if len(o.AvoidCountry) > 0 && !table.Has(asn.Country) {
		return &path.Error{What: "--avoid-country", Why: "the table knows no countries", Hint: "import some: heddle asn import --help"}
	}
	plan, cache, err := f.plan(cmd.Context(), destination)
	if err != nil {
		return err
	}
	c, oldest, err := plan.Choose(cache.Halves, f.MaxAge, table, o)
	if err != nil {
		return withSurveyHint(err, c, destination)
	}
	answer := f.answer(c, plan, table, oldest)
	if f.JSON {
		err = cli.WriteJSON(cmd.OutOrStdout(), answer)
	} else {
		err = printChoice(cmd.OutOrStdout(), answer, table)
	}
	return errors.Join(err, f.verdict(answer, table))
}

func (f *overlayChoose) options() (diversity.Options, error) {
	o := diversity.Options{Paths: f.Paths, AvoidCountry: f.AvoidCountry, Degrade: f.Degrade}
	if f.Paths < 1 || f.Paths > diversity.MaxPaths {
		return o, &path.Error{What: fmt.Sprintf("--paths %d", f.Paths), Why: fmt.Sprintf("it must be 1 to %d", diversity.MaxPaths), Hint: "two or three are the usual"}
	}
	for _, text := range f.AvoidAS {
		as, err := diversity.ParseAS(text)
		if err != nil {
			return o, err
		}
		o.AvoidAS = append(o.AvoidAS, as)
	}
	for _, country := range f.AvoidCountry {
		if len(country) != 2 {
			return o, &path.Error{What: fmt.Sprintf("--avoid-country %q", country), Why: "it is no code of two letters", Hint: "ISO 3166: DE, FR, JP"}
		}
	}
	return o, nil
}

// withSurveyHint adds a hint to run a survey if measurements are missing.
func withSurveyHint(err error, c diversity.Choice, destination string) error {
	for _, r := range c.Refused {
		if strings.Contains(r.Why, "not surveyed") {
			return cli.Hint(err, "heddle overlay survey "+destination+", with the same --via and --node")
		}
	}
	return err
}

func (f *overlayChoose) answer(c diversity.Choice, plan *survey.Plan, table *asn.Table, oldest time.Duration) chosen {
	a := chosen{To: plan.To.String(), Diverse: c.Diverse(), Choice: c, RTT: map[string]float64{}, Names: map[diversity.AS]string{}, SurveyAge: int64(oldest.Seconds())}
	for _, s := range table.Sources() {
		a.TableAge = max(a.TableAge, int64(s.Age(time.Now()).Seconds()))
	}
	used := map[string]bool{}
	for _, p := range c.Paths {
		if p.RTT > 0 {
			a.RTT[p.Name] = float64(p.RTT) / float64(time.Millisecond)
		}
		for _, as := range p.ASes {
			if name := table.Name(as); name != "" {
				a.Names[as] = name
			}
		}
		used[p.Uplink] = true
	}
	for _, spec := range plan.Uplinks {
		if spec.Name != "" && used[spec.Name] {
			a.Flags = append(a.Flags, "--path", spec.String())
		}
	}
	for _, p := range c.Paths {
		spec := path.Spec{Name: p.Node, Kind: client.Scheme, Arg: p.Node, Base: p.Uplink}
		a.Flags = append(a.Flags, "--via", spec.String())
	}
	return a
}

// verdict returns an error if networks see two paths, unless --degrade accepts that.
func (f *overlayChoose) verdict(a chosen, table *asn.Table) error {
	if a.Diverse || f.Degrade {
		return nil
	}
	named := func(as diversity.AS) string { return namedAS(as, table) }
	hint := "accept it with --degrade, or add nodes and uplinks and survey again"
	if len(a.Unavoidable) > 0 {
		hint = "all paths pass " + namedASes(a.Unavoidable, table) + "; add another uplink, or accept it with --degrade"
	}
	return &path.Error{What: "no diverse set of " + text.Count(f.Paths, "path"), Hint: hint,
		Why: "seen together: " + text.Printable(a.SeenTogether(named))}
}

// printChoice prints the choice and the reasons.
func printChoice(w io.Writer, a chosen, table *asn.Table) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", choiceText(a, table))
	lines := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(lines, "PATH\tRTT\tHIDDEN\tNETWORKS")
	for _, p := range a.Paths {
		rtt := "-"
		if ms, ok := a.RTT[p.Name]; ok {
			rtt = fmt.Sprintf("%.1f ms", ms)
		}
		fmt.Fprintf(lines, "%s\t%s\t%d\t%s\n", p.Name, rtt, p.Hidden, asesText(p.ASes))
	}
	if len(a.Pairs) > 0 {
		fmt.Fprintln(lines, "\nPAIR\tUPLINKS\tSEEN BY")
	}
	for _, p := range a.Pairs {
		uplinks, common := "two", "none known"
		if p.SameUplink {
			uplinks = "one"
		}
		if len(p.Common) > 0 {
			common = namedASes(p.Common, table)
		}
		fmt.Fprintf(lines, "%s, %s\t%s\t%s\n", p.A, p.B, uplinks, common)
	}
	lines.Flush()
	if len(a.Refused) > 0 {
		fmt.Fprintf(lines, "\nLEFT OUT\tWHY\n")
		for _, r := range a.Refused {
			fmt.Fprintf(lines, "%s\t%s\n", r.Path, r.Why)
		}
		lines.Flush()
	}
	fmt.Fprintf(&b, "\nmeasured up to %s ago, with a table of ASes up to %s old\nto use them: %s\n",
		cli.AgeText(time.Duration(a.SurveyAge)*time.Second), cli.AgeText(time.Duration(a.TableAge)*time.Second), strings.Join(a.Flags, " "))
	_, err := io.WriteString(w, text.Printable(b.String(), '\n'))
	return err
}

// choiceText is the choice as text.
func choiceText(a chosen, table *asn.Table) string {
	var names []string
	for _, p := range a.Paths {
		names = append(names, p.Name)
	}
	said := fmt.Sprintf("Of %s, %s", text.Count(a.Usable, "usable path"), strings.Join(names, ", "))
	switch {
	case len(a.Paths) == 1:
		said += ": the fastest. One path is seen whole by every network on it."
	case a.Diverse:
		said += ": no network is known to see two of them."
	default:
		said += fmt.Sprintf(": %s over all pairs, and no set has fewer.", text.Count(a.Common, "common network"))
	}
	if !a.Exact {
		said += " The search was cut short: there may be a better set."
	}
	if len(a.Everywhere) > 0 {
		said += " All of them pass " + namedASes(a.Everywhere, table) + "."
	}
	if len(a.Ends) > 0 {
		said += " The destination's own network, " + namedASes(a.Ends, table) + ", sees all and is not counted."
	}
	return said
}

func namedASes(ases []diversity.AS, table *asn.Table) string {
	var words []string
	for _, as := range ases {
		words = append(words, namedAS(as, table))
	}
	return strings.Join(words, ", ")
}

func namedAS(as diversity.AS, table *asn.Table) string {
	if name := table.Name(as); name != "" {
		return as.String() + " (" + name + ")"
	}
	return as.String()
}
