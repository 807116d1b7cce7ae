package send

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"heddle/cmd/heddle/internal/cli"
	"heddle/internal/text"
	"heddle/stripe"
	"heddle/stripe/transfer"
)

// progress shows a transfer and the part of each path. A terminal is redrawn in place; elsewhere it prints some lines.
type progress struct {
	out      io.Writer
	status   func() stripe.Status
	terminal bool
	began    time.Time
	stop     chan struct{}
	drawing  sync.WaitGroup

	mu   sync.Mutex
	last transfer.Progress
	from int64 // bytes done at the start, which do not count for the rate
	seen bool

	lines int // of the last drawing
}

const (
	drawEvery = 200 * time.Millisecond
	lineEvery = 10 * time.Second
)

func newProgress(out io.Writer, status func() stripe.Status, quiet bool) *progress {
	p := &progress{out: out, status: status, began: time.Now(), stop: make(chan struct{})}
	if quiet {
		return p
	}
	every := lineEvery
	if cli.IsTerminal(out) {
		p.terminal, every = true, drawEvery
	}
	p.drawing.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				if p.terminal {
					p.draw()
				}
				return
			case <-tick.C:
				p.draw()
			}
		}
	})
	return p
}

// update handles each step.
func (p *progress) update(now transfer.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.seen {
		p.seen, p.from = true, now.AllDone
	}
	p.last = now
}

// end draws for the last time.
func (p *progress) end() {
	close(p.stop)
	p.drawing.Wait()
}

func (p *progress) draw() {
	p.mu.Lock()
	now, from, seen := p.last, p.from, p.seen
	p.mu.Unlock()
	if !seen {
		return
	}
	rate := float64(now.AllDone-from) / max(time.Since(p.began).Seconds(), 1e-3)
	status := p.status()
	if !p.terminal {
		fmt.Fprintln(p.out, progressLine(now, rate)+"; "+pathsLine(status))
		return
	}
	width := cli.TerminalWidth(p.out)
	text := barLine(now, rate, width) + "\n" + pathLines(status, width)
	// Move up to the start of the last drawing and clear below (ECMA-48, CUU and ED).
	var up string
	if p.lines > 0 {
		up = fmt.Sprintf("\x1b[%dA", p.lines)
	}
	p.lines = strings.Count(text, "\n")
	fmt.Fprint(p.out, up+"\r\x1b[J"+text)
}

// progressLine formats the progress: 45% of 1.1GB, 23.1MB/s, 26s left: a.iso.
func progressLine(now transfer.Progress, rate float64) string {
	text := fmt.Sprintf("%s of %s, %s/s", text.Percent(part(now.AllDone, now.All)), text.Size(uint64(now.All)), text.Size(uint64(rate)))
	if left := now.All - now.AllDone; left > 0 && rate > 0 {
		text += ", " + cli.Span(min(time.Duration(float64(left)/rate*float64(time.Second)), 99*24*time.Hour)) + " left"
	}
	return text + ": " + now.File
}

func part(n, of int64) float64 {
	if of == 0 {
		return 1
	}
	return float64(n) / float64(of)
}

// barLine is progressLine after a bar, in at most width columns.
func barLine(now transfer.Progress, rate float64, width int) string {
	const columns = 20
	full := int(part(now.AllDone, now.All) * columns)
	full = max(0, min(full, columns))
	return clip("["+strings.Repeat("#", full)+strings.Repeat(".", columns-full)+"] "+progressLine(now, rate), width)
}

// clip cuts a line that a terminal would wrap.
func clip(text string, width int) string {
	runes := []rune(text)
	if width > 1 && len(runes) >= width {
		return string(runes[:width-1])
	}
	return text
}

// pathLines has a line for each path: name, state, bytes and share, round-trip time, and why it is idle.
func pathLines(s stripe.Status, width int) string {
	longest := 0
	for _, p := range s.Paths {
		longest = max(longest, len(p.Name))
	}
	var b strings.Builder
	for _, p := range s.Paths {
		line := fmt.Sprintf("  %-*s  %-8s %8s %7s  rtt %s", longest, p.Name, p.State, text.Size(p.Up.Bytes), text.Percent(p.Up.Share), cli.RTT(p.RTT))
		if p.Why != "" {
			line += "  " + p.Why
		}
		b.WriteString(clip(text.Printable(line, '\n'), width) + "\n")
	}
	if s.State != "running" && s.Why != "" {
		b.WriteString(clip(text.Printable("  "+s.State+": "+s.Why, '\n'), width) + "\n")
	}
	return b.String()
}

// pathsLine has all paths in one line: tokyo 33%, paris 33%, oslo 34% (down: it does not answer).
func pathsLine(s stripe.Status) string {
	var texts []string
	for _, p := range s.Paths {
		text := p.Name + " " + text.Percent(p.Up.Share)
		if p.State != "up" {
			text += " (" + p.State
			if p.Why != "" {
				text += ": " + p.Why
			}
			text += ")"
		}
		texts = append(texts, text)
	}
	return text.Printable(strings.Join(texts, ", "), '\n')
}
