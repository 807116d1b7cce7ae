package overlay

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/internal/text"
	"heddle/overlay/asn"
	"heddle/overlay/survey"
	"heddle/path"
	"heddle/path/diversity"
)

// overlaySurvey holds the flags of heddle overlay survey.
type overlaySurvey struct {
	planFlags
	MaxAge   time.Duration `flag:"max-age" help:"measure again what is older than this"`
	Far      []string      `flag:"far" help:"read a node's half from a file, <NODE=FILE>"`
	Identity string        `flag:"identity" help:"the <FILE> of this device's private key"`
	Rate     int           `flag:"rate" help:"the most probes per second"`
}

func newSurveyCommand() *cobra.Command {
	f := overlaySurvey{MaxAge: time.Hour, Rate: 100}
	return bind.Flags(&cobra.Command{
		Use:   "survey DESTINATION",
		Short: "Measure the paths to nodes, and from them to a destination",
		Long: `Survey measures both halves of each path to DESTINATION (HOST:PORT; port 443 if
not given): from this machine to each node by each uplink, and from each node to
DESTINATION. The nodes measure the second half. The probes are TCP segments of
one flow, so that routers send them all the same way. The round trips are of the
same flow. Survey does not repeat a measurement that is younger than --max-age.
It keeps all measurements for "heddle overlay choose".

Survey needs scamper and root. An observer of the probes learns the addresses of
the nodes, and the nodes learn DESTINATION. Nothing verifies what a node says of
its half. --far reads a node's half from a file that "heddle overlay trace
--json" wrote at that node.`,
		Example: `  heddle overlay survey 192.0.2.1:443 --via home=if:eth0 --via lte=if:wwan0
  heddle overlay survey files.example:22 --node tokyo --node paris --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}, &f)
}

// surveyed is the answer of heddle overlay survey. Its JSON fields are a stable interface.
type surveyed struct {
	To    string         `json:"to"`
	Paths []surveyedPath `json:"paths"`
}

type surveyedPath struct {
	survey.Path
	RTT float64 `json:"rtt_ms,omitempty"`
}

func (f *overlaySurvey) run(cmd *cobra.Command, destination string) error {
	if f.Rate < 1 || f.Rate > 10_000 {
		return cli.Usage(&path.Error{What: fmt.Sprintf("--rate %d", f.Rate), Why: "it must be 1 to 10000", Hint: "100 is the usual"})
	}
	plan, cache, err := f.plan(cmd.Context(), destination)
	if err != nil {
		return err
	}
	found, problems, err := f.measure(cmd, plan, cache.Halves)
	if err != nil {
		return err
	}
	if err := cache.Add(found, time.Now()); err != nil {
		return err
	}
	return f.print(cmd, plan, cache.Halves, problems)
}

// measure measures what is unknown or too old. problems are those of the nodes' halves.
func (f *overlaySurvey) measure(cmd *cobra.Command, plan *survey.Plan, halves map[string]survey.Half) (found map[string]survey.Half, problems map[string]string, err error) {
	found, problems = map[string]survey.Half{}, map[string]string{}
	if err := f.readFars(plan, found); err != nil {
		return nil, nil, err
	}
	stale := func(key string) bool {
		h, ok := halves[key]
		return !ok || h.Age(time.Now()) > f.MaxAge
	}
	var keys []string
	var requests []survey.Request
	for _, r := range plan.Requests {
		if key := survey.NearKey(r); stale(key) {
			keys, requests = append(keys, key), append(requests, r)
		}
	}
	talk := cmd.ErrOrStderr()
	fmt.Fprintf(talk, "survey: %s from here; the nodes measure theirs to %v\n", text.Count(len(requests), "path"), plan.To)
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, n := range plan.Nodes {
		key := survey.FarKey(n.Key(), plan.To.String())
		if _, given := found[key]; given || !stale(key) {
			continue
		}
		asking.Go(func() {
			h, err := plan.Ask(cmd.Context(), n, f.Identity)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				problems[n.Name] = err.Error()
				fmt.Fprintf(talk, "survey: %v\n", err)
				return
			}
			found[key] = h
		})
	}
	near, err := (&survey.Surveyor{Rate: f.Rate}).Measure(cmd.Context(), requests)
	asking.Wait()
	for i, h := range near {
		found[keys[i]] = h
	}
	return found, problems, err
}

// readFars reads the halves that --far names.
func (f *overlaySurvey) readFars(plan *survey.Plan, found map[string]survey.Half) error {
	for _, text := range f.Far {
		name, file, _ := strings.Cut(text, "=")
		bad := func(why string, err error) error {
			return cli.Usage(&path.Error{What: fmt.Sprintf("--far %q", text), Why: why, Err: err, Hint: "write NODE=FILE, with what `heddle overlay trace --json` printed at that node"})
		}
		i := slices.IndexFunc(plan.Nodes, func(n survey.Node) bool { return n.Name == name })
		if i < 0 {
			return bad("no such node", nil)
		}
		written, err := os.ReadFile(file)
		if err != nil {
			return bad("cannot be read", err)
		}
		h, err := survey.ParseHalf(written)
		if err != nil {
			return bad("it is no half of a path", err)
		}
		if h.To != plan.To {
			return bad(fmt.Sprintf("it leads to %v instead of %v", h.To, plan.To), nil)
		}
		found[survey.FarKey(plan.Nodes[i].Key(), plan.To.String())] = h
	}
	return nil
}

func (f *overlaySurvey) print(cmd *cobra.Command, plan *survey.Plan, halves map[string]survey.Half, problems map[string]string) error {
	table, err := asn.OpenOr(f.Table)
	if errors.Is(err, os.ErrNotExist) {
		fmt.Fprintln(cmd.ErrOrStderr(), "survey: no table of ASes: addresses have no networks; `heddle asn import FILE` makes one")
		table, err = &asn.Table{}, nil
	}
	if err != nil {
		return err
	}
	paths, _ := plan.Paths(halves, max(f.MaxAge, time.Minute), table, time.Now())
	answer := surveyed{To: plan.To.String(), Paths: []surveyedPath{}}
	for _, p := range paths {
		if p.Far == nil && plan.Problems[[2]string{p.Node, p.Uplink}] == "" {
			p.Why = cmp.Or(problems[p.Node], p.Why)
		}
		answer.Paths = append(answer.Paths, surveyedPath{p, float64(p.RTT) / float64(time.Millisecond)})
	}
	if f.JSON {
		return cli.WriteJSON(cmd.OutOrStdout(), answer)
	}
	return printSurvey(cmd.OutOrStdout(), answer)
}

func printSurvey(out io.Writer, answer surveyed) error {
	lines := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(lines, "PATH\tRTT\tHIDDEN\tNETWORKS TO "+answer.To)
	for _, p := range answer.Paths {
		rtt := "-"
		if p.RTT > 0 {
			rtt = fmt.Sprintf("%.1f ms", p.RTT)
		}
		fmt.Fprintf(lines, "%s\t%s\t%d\t%s\n", text.Printable(p.Name), rtt, p.Hidden, text.Printable(cmp.Or(p.Why, asesText(p.ASes))))
	}
	return lines.Flush()
}

func asesText(ases []diversity.AS) string {
	var words []string
	for _, as := range slices.Compact(slices.Clone(ases)) { // both halves contain the node's own AS
		words = append(words, as.String())
	}
	return strings.Join(words, " ")
}

func newTraceCommand() *cobra.Command {
	var f struct {
		bind.Printing
		Via string `flag:"via" help:"the uplink, <NAME=if:DEVICE> or NAME=src:ADDRESS" complete:"path"`
	}
	return bind.Flags(&cobra.Command{
		Use:   "trace DESTINATION",
		Short: "Measure the path from here to a destination",
		Long: `Trace measures the path from this machine to DESTINATION (HOST:PORT; port 443 if
not given), as "heddle overlay survey" does. Use it at a node that no survey can
ask, and give the output of --json to "heddle overlay survey --far". It needs
scamper and root.`,
		Example: "  heddle overlay trace 192.0.2.1:443 --json > tokyo.json\n  heddle overlay trace 192.0.2.1:443 --via lte=if:wwan0",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := survey.Resolve(cmd.Context(), args[0], "443")
			if err != nil {
				return cli.Usage(err)
			}
			var spec path.Spec
			if f.Via != "" {
				if spec, err = path.ParseSpec(f.Via); err != nil {
					return cli.Usage(err)
				}
			}
			up, err := survey.FindUplink(spec, to.Addr())
			if err != nil {
				return err
			}
			halves, err := (&survey.Surveyor{}).Measure(cmd.Context(), []survey.Request{{Uplink: up, To: to}})
			if err != nil {
				return err
			}
			if f.JSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(halves[0])
			}
			return printHalf(cmd.OutOrStdout(), halves[0])
		},
	}, &f)
}

func printHalf(out io.Writer, h survey.Half) error {
	table, err := asn.OpenOr("")
	if err != nil { // the addresses are useful without the table
		table = &asn.Table{}
	}
	lines := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(lines, "HOP\tADDRESS\tRTT\tNETWORK")
	for _, hop := range h.Hops {
		if !hop.Addr.IsValid() {
			fmt.Fprintf(lines, "%d\t*\t-\t-\n", hop.TTL)
			continue
		}
		network := "-"
		if e := table.Lookup(hop.Addr); e.AS != 0 {
			network = e.AS.String() + " " + e.Name
		}
		fmt.Fprintf(lines, "%d\t%v\t%.1f ms\t%s\n", hop.TTL, hop.Addr, hop.RTT, text.Printable(network, '\n'))
	}
	if err := lines.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "reached %v: %v; round trip %.1f ms by %s\n", h.To, h.Reached, h.RTT, cli.OrDash(h.Ping))
	return err
}
