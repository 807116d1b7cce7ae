package observe

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"heddle/internal/text"
	"heddle/observe/inspect"
)

const (
	textWidth  = 96 // default width of the text in columns
	labelWidth = 24
)

// column is one observer in a table.
type column struct {
	session, observer string
	cells             []string // one for each of rowNames
}

var rowNames = []string{"packets", "bytes", "share", "  up", "  down", "longest run (packets)", "  up", "  down", "visits",
	"  median run (packets)", "watched, first to last", "  within its visits", "protocol", "servers", "names read",
	"content read"}

func newColumn(session string, e Exposure) column {
	return column{session: session, observer: e.Observer, cells: []string{
		grouped(e.Packets), text.Size(e.Bytes), text.Percent(e.Share), text.Percent(e.Up.Share), text.Percent(e.Down.Share),
		grouped(e.LongestRun), grouped(e.Up.LongestRun), grouped(e.Down.LongestRun), grouped(e.Visits), grouped(e.MedianRun),
		seconds(e.Watched), seconds(e.Slots), listed(e.Protocols, 1), listed(e.Servers, 1), countNames(e.Names),
		contentRead(e.Content)}}
}

func columns(r Report) []column {
	var all []column
	for _, session := range r.sessions() {
		for _, e := range session.Observers {
			all = append(all, newColumn(session.Label, e))
		}
	}
	return all
}

// WriteText prints the report as tables of at most 96 columns, or width if that is above 0 and less. An observer's
// column is never truncated.
func WriteText(w io.Writer, r Report, width int) error {
	if width <= 0 || width > textWidth {
		width = textWidth
	}
	var b strings.Builder
	for _, session := range r.sessions() {
		writeWrapped(&b, "", session.headline(), width)
	}
	all := columns(r)
	for len(all) > 0 {
		n, wide := 1, labelWidth+2+all[0].width()
		for n < len(all) && wide+2+all[n].width() <= width {
			wide += 2 + all[n].width()
			n++
		}
		b.WriteByte('\n')
		writeTable(&b, all[:n])
		all = all[n:]
	}
	for _, session := range r.sessions() {
		for _, e := range session.Observers {
			who := session.Label + ", " + e.Observer
			writeList(&b, "names that "+who+" read", nameList(e.Names))
			writeList(&b, "requests that "+who+" read", e.Content.Requests)
		}
	}
	b.WriteByte('\n')
	writeWrapped(&b, "", r.Claim, width)
	for _, l := range r.allLimits() {
		writeWrapped(&b, "- ", l, width)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// sessions lists the report's session and its baselines.
func (r Report) sessions() []Report { return append([]Report{r}, r.Baselines...) }

// allLimits lists the limits of all sessions without duplicates.
func (r Report) allLimits() []string {
	var all []string
	for _, session := range r.sessions() {
		for _, l := range session.Limits {
			if !slices.Contains(all, l) {
				all = append(all, l)
			}
		}
	}
	return all
}

// headline describes the session in a sentence.
func (r Report) headline() string {
	most, names, content := 0.0, 0, int64(0)
	for _, e := range r.Observers {
		most, names, content = max(most, e.Share), names+len(nameList(e.Names)), content+e.Content.Bytes
	}
	saw := fmt.Sprintf("none saw more than %s of the bytes", text.Percent(most))
	if len(r.Observers) == 1 {
		saw = "it saw all of it"
	}
	read := "no name and no content was read"
	if names > 0 || content > 0 {
		read = fmt.Sprintf("%s and %s of content were read", text.Count(names, "name"), text.Size(content))
	}
	return fmt.Sprintf("%s: %s packets, %s in %s; %s: %s; %s.", r.Label, grouped(r.Packets), text.Size(r.Bytes), seconds(r.Seconds),
		text.Count(len(r.Observers), "observer"), saw, read)
}

func (c column) width() int {
	w := max(utf8.RuneCountInString(c.session), utf8.RuneCountInString(c.observer))
	for _, cell := range c.cells {
		w = max(w, utf8.RuneCountInString(cell))
	}
	return w
}

func writeTable(b *strings.Builder, table []column) {
	line := func(label string, cell func(i int) string) {
		text := fmt.Sprintf("%-*s", labelWidth, label)
		for i, c := range table {
			text += strings.Repeat(" ", 2+c.width()-utf8.RuneCountInString(cell(i))) + cell(i)
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	line("", func(i int) string {
		if i > 0 && table[i-1].session == table[i].session {
			return ""
		}
		return table[i].session
	})
	line("observer", func(i int) string { return table[i].observer })
	for row, name := range rowNames {
		line(name, func(i int) string { return table[i].cells[row] })
	}
}

const listMost = 20

func writeList(b *strings.Builder, title string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	for i, item := range items {
		if i == listMost {
			fmt.Fprintf(b, "  and %d more\n", len(items)-listMost)
			return
		}
		fmt.Fprintln(b, " ", item)
	}
}

func writeWrapped(b *strings.Builder, mark, text string, width int) {
	column := len(mark)
	b.WriteString(mark)
	for i, word := range strings.Fields(text) {
		if i > 0 && column+1+len(word) > width {
			b.WriteString("\n" + strings.Repeat(" ", len(mark)))
			column = len(mark)
		} else if i > 0 {
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	b.WriteByte('\n')
}

func nameList(names []inspect.Name) []string {
	var order []string
	from := map[string]string{}
	for _, n := range names {
		if from[n.Name] == "" {
			order = append(order, n.Name)
			from[n.Name] = n.From
		} else {
			from[n.Name] += ", " + n.From
		}
	}
	for i, n := range order {
		order[i] = n + " (" + from[n] + ")"
	}
	return order
}

func countNames(names []inspect.Name) string {
	if len(names) == 0 {
		return "none"
	}
	return fmt.Sprint(len(nameList(names)))
}

func contentRead(c Content) string {
	if c.Bytes == 0 {
		return "none"
	}
	return text.Size(c.Bytes) + " " + text.Percent(c.Share)
}

// listed lists the first most items and counts the others.
func listed(items []string, most int) string {
	switch {
	case len(items) == 0:
		return "none"
	case len(items) <= most:
		return strings.Join(items, ", ")
	}
	return fmt.Sprintf("%s +%d", strings.Join(items[:most], ", "), len(items)-most)
}

// grouped writes a number with a comma between thousands.
func grouped(n int) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func seconds(s float64) string {
	if s < 1 {
		return fmt.Sprintf("%.0f ms", s*1000)
	}
	return fmt.Sprintf("%.1f s", s)
}
