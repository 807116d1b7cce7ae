package disguise

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/disguise/site"
	"heddle/internal/text"
	"heddle/observe"
	"heddle/observe/decrypt"
	"heddle/path"
)

func newSiteCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "site",
		Short: "Record websites in which payload can hide",
		Long: `A site is what a browser fetched of a website: pages, what they load, types,
sizes, cookies without their values, headers for caches, and times. Web covers
hide payload in its objects. Bridge and client need the same file.`,
		Example: "  heddle disguise site import visit.har --out site.db\n" +
			"  heddle disguise site show site.db\n" +
			"  heddle disguise site check site.db",
	}
	command.AddCommand(newSiteImportCommand(), newSiteShowCommand(), newSiteServeCommand(), newSiteCheckCommand())
	return command
}

type siteFlags struct {
	KeyLog []string `flag:"keylog" help:"the <FILE> of TLS secrets (SSLKEYLOGFILE) that opens the\nconnections of a capture; may be repeated" complete:"file"`
	Out    string   `flag:"out" help:"the <FILE> to write" complete:"file"`
	Origin string   `flag:"origin" help:"the <ORIGIN> of the site, such as https://www.example\n(default: that of the first page of a HAR or a capture)"`
	About  string   `flag:"about" help:"<TEXT> on where the site is from"`
}

func newSiteImportCommand() *cobra.Command {
	f := siteFlags{Out: "site.db"}
	return bind.Flags(&cobra.Command{
		Use:   "import HAR|CAPTURE|DIRECTORY",
		Short: "Make a site of what a browser fetched, or of files",
		Long: `Make a site of an HTTP archive (HAR), with the bodies, as the developer tools of
browsers and Playwright write it, of a CAPTURE (pcap or pcapng) of HTTP/1.1 or
HTTP/2, or of a DIRECTORY of files. Visit each page twice, without a cache: an
object that differs between two visits may differ at each.

A capture of HTTPS needs the secrets of its connections (--keylog), which
Chromium and Firefox write to the file that SSLKEYLOGFILE names. Switch QUIC
off, visit one page at a time, and delete the secrets afterwards.

Only the origin's objects are kept. Values of cookies are not kept, but bodies
are, with what they say about the visitor: do not log in to record.`,
		Example: "  heddle disguise site import visit.har --out site.db\n" +
			"  heddle disguise site import visit.pcapng --keylog secrets.txt\n" +
			"  heddle disguise site import mirror/ --origin https://www.example --out site.db",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}, &f)
}

func (f *siteFlags) run(cmd *cobra.Command, name string) error {
	s, skipped, err := f.read(name)
	for _, why := range slices.Sorted(maps.Keys(skipped)) {
		fmt.Fprintf(cmd.ErrOrStderr(), "skipped %s %s\n", text.Count(skipped[why], "object"), why)
	}
	if err != nil {
		return err
	}
	s.About = f.About
	if err := s.Write(f.Out); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, %s, fingerprint %x\n", f.Out, text.Count(len(s.Pages), "page"), text.Count(len(s.Objects), "object"), s.Fingerprint)
	return err
}

func (f *siteFlags) read(name string) (*site.Site, site.Skipped, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, nil, &path.Error{What: "import " + name, Err: err}
	}
	if info.IsDir() {
		if f.Origin == "" {
			return nil, nil, cli.Usage(&path.Error{What: "--origin", Why: "files do not say from where they are", Hint: "for example --origin https://www.example"})
		}
		s, skipped, err := site.ReadDirectory(name, f.Origin)
		return s, skipped, wrap(name, err)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, nil, wrap(name, err)
	}
	defer file.Close()
	all, stopped, err := observe.Conversations(file)
	if errors.Is(err, observe.ErrNotACapture) {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return nil, nil, wrap(name, err)
		}
		s, skipped, err := site.ReadHAR(file, f.Origin)
		return s, skipped, wrap(name, err)
	}
	if err == nil && stopped != "" {
		err = errors.New(stopped)
	}
	if err != nil {
		return nil, nil, &path.Error{What: "import " + name, Err: err}
	}
	keys, err := decrypt.ReadFiles(f.KeyLog...)
	if err != nil {
		return nil, nil, &path.Error{What: "--keylog", Err: err, Hint: "browsers write one to the file that the variable SSLKEYLOGFILE names"}
	}
	s, skipped, err := site.ReadCapture(all, keys, f.Origin)
	if err != nil {
		err = &path.Error{What: "import " + name, Err: err, Hint: "capture whole packets, from before the browser starts; HTTPS needs --keylog, and QUIC must be off"}
	}
	return s, skipped, err
}

func wrap(name string, err error) error {
	if err == nil {
		return nil
	}
	return &path.Error{What: "import " + name, Err: err, Hint: "export it from the browser's network tools as HAR with content"}
}

func newSiteShowCommand() *cobra.Command {
	var f struct {
		bind.Printing
		Dot bool `flag:"dot" help:"print the graph of the pages for Graphviz"`
	}
	return bind.Flags(&cobra.Command{
		Use:   "show FILE",
		Short: "Show the pages of a site, and what they load and link to",
		Long: `Show lists the pages of a site, with the objects that each loads, their types
and sizes, and the pages that it links to. With --dot it prints the graph of
these links, which dot of Graphviz draws.`,
		Example: "  heddle disguise site show site.db\n" +
			"  heddle disguise site show site.db --dot | dot -Tsvg -o site.svg",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := site.Open(args[0])
			if err != nil {
				return err
			}
			if f.Dot {
				return s.WriteGraph(cmd.OutOrStdout())
			}
			if f.JSON {
				return cli.WriteJSON(cmd.OutOrStdout(), struct {
					Fingerprint string `json:"fingerprint"`
					*site.Site
				}{fmt.Sprintf("%x", s.Fingerprint), s})
			}
			printSite(cmd.OutOrStdout(), s)
			return nil
		},
	}, &f)
}

func printSite(w io.Writer, s *site.Site) {
	fmt.Fprintf(w, "%s, fingerprint %x\n", text.Printable(s.Origin), s.Fingerprint)
	if s.About != "" {
		fmt.Fprintln(w, text.Printable(s.About))
	}
	for _, p := range s.Pages {
		fmt.Fprintln(w)
		printObject(w, "", &s.Objects[p.Document])
		for _, l := range p.Loads {
			printObject(w, fmt.Sprintf("  +%d ms ", l.At), &s.Objects[l.Object])
		}
		for _, l := range p.Links {
			fmt.Fprintf(w, "  -> %s\n", text.Printable(s.Objects[l].URL))
		}
	}
}

func printObject(w io.Writer, prefix string, o *site.Object) {
	fmt.Fprintf(w, "%s%s  %d %s, %s", prefix, text.Printable(o.URL), o.Status, text.Printable(o.Type), text.Size(o.Size))
	if why := o.Fresh(); why != "" {
		fmt.Fprintf(w, ", fresh: %s", why)
	}
	fmt.Fprintln(w)
}

func newSiteCheckCommand() *cobra.Command {
	var f bind.Printing
	return bind.Flags(&cobra.Command{
		Use:   "check FILE",
		Short: "Tell what a site can hide, and what a prober could notice",
		Long: `Hide random bytes in each object of a site that has room, and compare it with
the original: with node, pngcheck and ffprobe where they are installed, and with
parsers that Heddle brings. It fails if one of them refuses an object, and names
the objects at which none of them looked.

Only objects whose bytes may differ between two visits are used: otherwise a
censor could fetch the same URL and compare.`,
		Example: "  heddle disguise site check site.db",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := site.Open(args[0])
			if err != nil {
				return err
			}
			r, err := site.Check(cmd.Context(), s)
			if err != nil {
				return err
			}
			if f.JSON {
				err = cli.WriteJSON(cmd.OutOrStdout(), r)
			} else {
				err = printReport(cmd.OutOrStdout(), r)
			}
			if err == nil && r.Failed > 0 {
				err = &path.Error{What: "site " + args[0], Err: errors.New("a judge refuses " + text.Count(r.Failed, "object")), Hint: "the notices name them"}
			}
			return err
		},
	}, &f)
}

func printReport(w io.Writer, r *site.Report) error {
	fmt.Fprintf(w, "fingerprint %s\n\n", r.Fingerprint)
	err := cli.Table(w, "TYPE\tOBJECTS\tCAPACITY\tON THE WIRE\tEXPANSION\tUNUSED", r.Types, func(t site.TypeRoom) []any {
		return []any{text.Printable(t.Type), t.Objects, text.Size(t.Capacity), text.Size(t.Wire), expansion(t.Capacity, t.Wire), text.Size(t.Unused)}
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(w)
	err = cli.Table(w, "PAGE\tLOADS\tCAPACITY\tON THE WIRE\tEXPANSION", r.Pages, func(p site.PageRoom) []any {
		return []any{text.Printable(p.URL), p.Loads, text.Size(p.Capacity), text.Size(p.Wire), expansion(p.Capacity, p.Wire)}
	})
	if err != nil {
		return err
	}
	if len(r.Unjudged) > 0 {
		fmt.Fprintln(w, "\nWhat no judge looked at:")
	}
	for _, u := range r.Unjudged {
		fmt.Fprintf(w, "  %s of type %s: %s\n", text.Count(u.Objects, "object"), text.Printable(u.Type), u.Why)
	}
	if len(r.Notices) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nWhat a prober could notice:")
	for _, n := range r.Notices {
		fmt.Fprintf(w, "  %s: %s\n", text.Printable(cli.OrDash(n.URL)), text.Printable(n.Text))
	}
	return nil
}

// expansion is how many bytes on the wire one hidden byte costs.
func expansion(capacity, wire int) string {
	if capacity == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2fx", float64(wire)/float64(capacity))
}
