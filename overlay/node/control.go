package node

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"

	"heddle/identity"
	"heddle/overlay/client"
)

// status answers a grantor with everything, and a holder with the grant that was shown.
func (n *Node) status(r *http.Request, holder identity.Key) (any, *client.Refusal) {
	if holder == n.key || slices.Contains(n.o.Grantors, holder) {
		proved(r)
		return n.Status(), nil
	}
	a, why := n.admit(r, holder, "")
	if why != nil {
		return nil, why
	}
	return client.Status{Name: n.o.Name, Key: n.key, Now: n.o.now(), Since: n.since, Modes: n.o.Modes, Grants: []client.GrantStatus{a.status()}}, nil
}

// Status returns what the node has done so far, and for whom.
func (n *Node) Status() client.Status {
	s := client.Status{Name: n.o.Name, Key: n.key, Now: n.o.now(), Since: n.since, Modes: n.o.Modes, Listen: n.listener.Addr().String(),
		Strangers: n.crowd.Count(), FlowsOpen: n.flows.Count(), Flows: n.counts.flows.Load(), Up: n.counts.up.Load(), Down: n.counts.down.Load(), Grants: []client.GrantStatus{}}
	n.counts.mu.Lock()
	s.Refused = maps.Clone(n.counts.refused)
	n.counts.mu.Unlock()
	for _, a := range n.ledger.all() {
		s.Grants = append(s.Grants, a.status())
	}
	return s
}

// survey measures the path from the node to a destination.
func (n *Node) survey(w http.ResponseWriter, r *http.Request, holder identity.Key) (any, *client.Refusal) {
	a, why := n.admit(r, holder, client.ModeSurvey)
	if why != nil {
		return nil, why
	}
	var ask client.SurveyRequest
	if !readBody(w, r, &ask) || !ask.To.IsValid() {
		return nil, &client.Refusal{Reason: client.ReasonRequest}
	}
	if where, err := n.places(a.grant); err != nil || !where.allowed("", ask.To) {
		return nil, &client.Refusal{Reason: client.ReasonDestination}
	}
	select {
	case n.surveys <- struct{}{}:
		defer func() { <-n.surveys }()
	default:
		return nil, &client.Refusal{Reason: client.ReasonBusy}
	}
	u := a.begin(r.Context(), n.o.now())
	defer u.end(context.Canceled)
	ctx, cancel := context.WithTimeout(u.ctx, patienceSurvey)
	defer cancel()
	found, err := n.o.Survey(ctx, ask.To)
	if err != nil {
		n.log.Warn("a survey failed", "err", err)
		return nil, &client.Refusal{Reason: client.ReasonFailed, Detail: err.Error()}
	}
	return found, nil
}

// readBody decodes a JSON request. It returns false if it is none.
func readBody(w http.ResponseWriter, r *http.Request, into any) bool {
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(patienceRequest))
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, longestRequest))
	decoder.DisallowUnknownFields()
	if decoder.Decode(into) != nil || decoder.More() {
		return false
	}
	return control.SetReadDeadline(time.Time{}) == nil
}

func (n *Node) answer(w http.ResponseWriter, answer any) {
	text, err := json.Marshal(answer)
	if err != nil {
		n.log.Error("an answer cannot be written", "err", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patienceRequest))
	w.Header().Set("Content-Type", "application/json")
	w.Write(text)
}
