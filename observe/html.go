package observe

import (
	_ "embed"
	"html/template"
	"io"
	"strings"

	"heddle/observe/plot"
)

//go:embed report.html
var pageText string

var pageTemplate = template.Must(template.New("report").Parse(pageText))

// page is the data of the template.
type page struct {
	Report
	Palette    template.CSS
	Headlines  []string
	Timelines  []template.HTML
	Shares     template.HTML
	Groups     []group
	Rows       []row
	Histograms []histograms
	Read       []readBy
	AllLimits  []string
}

type group struct {
	Label string
	Span  int
}

type row struct {
	Name  string
	Sub   bool // part of the row above
	Cells []string
}

type histograms struct {
	Label       string
	Gaps, Sizes template.HTML
}

type readBy struct {
	Who             string
	Names, Requests []string
}

// Compare reports on a session and on other ways to run it.
func Compare(s *Session, baselines ...*Session) Report {
	r := s.Report()
	for _, b := range baselines {
		r.Baselines = append(r.Baselines, b.Report())
	}
	return r
}

// WriteHTML writes the report on a session and its baselines as one self-contained page.
func WriteHTML(w io.Writer, s *Session, baselines ...*Session) error {
	r := Compare(s, baselines...)
	p := page{Report: r, Palette: plot.Palette, Shares: template.HTML(shareBars(r)), AllLimits: r.allLimits()}
	colour := 0
	for _, session := range append([]*Session{s}, baselines...) {
		p.Timelines = append(p.Timelines, template.HTML(session.timeline(colour)))
		for i := range session.Observers {
			o := &session.Observers[i]
			p.Histograms = append(p.Histograms, histograms{Label: session.Label + ", " + o.Name,
				Gaps: template.HTML(o.gaps(colour)), Sizes: template.HTML(o.sizes(colour))})
			colour++
		}
	}
	for _, session := range r.sessions() {
		p.Headlines = append(p.Headlines, session.headline())
		p.Groups = append(p.Groups, group{session.Label, len(session.Observers)})
		for _, e := range session.Observers {
			p.Read = append(p.Read, readBy{session.Label + ", " + e.Observer, nameList(e.Names), e.Content.Requests})
		}
	}
	all := columns(r)
	observers := row{Name: "observer"}
	for _, c := range all {
		observers.Cells = append(observers.Cells, c.observer)
	}
	p.Rows = append(p.Rows, observers)
	for i, name := range rowNames {
		cells := row{Name: strings.TrimSpace(name), Sub: strings.HasPrefix(name, " ")}
		for _, c := range all {
			cells.Cells = append(cells.Cells, c.cells[i])
		}
		p.Rows = append(p.Rows, cells)
	}
	return pageTemplate.Execute(w, p)
}
