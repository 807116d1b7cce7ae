package observe

import (
	"fmt"
	"strings"

	"heddle/internal/text"
)

const claim = "From captures alone: what each observer could count and read. " +
	"Not what it could infer, such as a web site from the pattern of sizes and times."

// limits returns what this report cannot know, as far as it applies.
func (s *Session) limits(r Report) []string {
	var l []string
	if len(r.Observers) > 1 {
		l = append(l, "Runs and visits merge the captures by their clocks: they hold where one clock stamped them all.",
			"Observers who work together join what they saw; then the figures of all of them count.")
	}
	l = append(l, "Names come from DNS, TLS and QUIC hellos, and HTTP; names in certificates, and in later requests of "+
		"one HTTP connection, are not looked for.")
	var foreign uint64
	for _, e := range r.Observers {
		who := s.Label + ", " + e.Observer
		if e.Packets == 0 {
			l = append(l, who+": the capture holds no packet of the session.")
		}
		if e.ClientBy == "guessed" && e.Packets > 0 {
			l = append(l, fmt.Sprintf("%s: the client was guessed to be %s; say --client ADDRESS if it is not.",
				who, strings.Join(e.Client, ", ")))
		}
		if e.Stopped != "" {
			l = append(l, who+": "+e.Stopped+"; what follows is not counted.")
		}
		if e.Missed > 0 {
			l = append(l, fmt.Sprintf("%s: the capture says that it missed %s.", who, text.Count(int(e.Missed), "packet")))
		}
		foreign += e.Foreign
		if e.Joined > 0 {
			l = append(l, fmt.Sprintf("%s: %d packets are larger than %d bytes: several, joined before the capture, so "+
				"packets and runs are counted too low.", who, e.Joined, ethernetMTU))
		}
	}
	if foreign > 0 {
		l = append(l, fmt.Sprintf("%s: left out %s, neither from nor to the client.", s.Label, text.Count(int(foreign), "packet")))
	}
	return append(l, s.Notes...)
}
