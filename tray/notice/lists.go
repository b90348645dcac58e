package notice

import (
	"fmt"
	"unicode/utf8"

	"kith.dev/assets/icon"
	"kith.dev/core/api"
	"kith.dev/tray/question"
	"kith.dev/tray/words"
)

// requests tells of those that wait for this owner's answer, and takes back those that wait no more.
func (d *diff) requests() {
	now := map[string]pending{}
	for _, r := range d.Snapshot.Requests {
		if r.Direction != api.Incoming || r.State != api.StateRequested {
			continue
		}
		now[r.ID] = pending{r.PeerID, r.Code, r.Grants()}
		if d.old.started && d.old.requests[r.ID] != now[r.ID] {
			d.tellOf("requests of "+r.PeerID, words.Name(r.Peer), Asks(r))
		}
	}
	retractGone(d, "request/", d.old.requests, now)
	d.next.requests = now
}

// retractGone takes back the notices of what was there and is no more.
func retractGone[T any](d *diff, prefix string, old, now map[string]T) {
	for id := range old {
		if _, still := now[id]; !still {
			d.retract(prefix + id)
		}
	}
}

// Asks is the notice of a peer's request.
func Asks(r api.Request) Notice {
	who, title := words.Name(r.Peer), " asks to use this laptop"
	if len(r.InForce) > 0 {
		title = " asks to change what it uses of this laptop"
	}
	gets := "It would get " + words.Grants(r) + "."
	if r.Tether {
		title, gets = " asks this cluster to run it", "With a yes "+words.Text(r.Grants())+"."
	}
	check := "Its key is known: you accepted it before."
	if r.Code != "" {
		check = fmt.Sprintf("Code %s: accept only if its owner sees the same.", words.Code(r.Code))
	}
	return Notice{
		Key: "request/" + r.ID, Kind: Request, Title: who + title, Body: lines(gets, check),
		Icon: icon.Offering, About: Subject{Request: r.ID, Grants: r.Grants()},
	}
}

// confirms tells which peers accepted and wait for this owner to compare the code or to agree to their terms.
func (d *diff) confirms() {
	now := map[string]string{}
	for _, p := range d.Snapshot.Peers {
		if p.Confirm == nil {
			continue
		}
		now[p.ID] = fmt.Sprintf("%q %q", p.Confirm.Code, p.Confirm.Terms) // another code or other terms are another question
		if d.old.started && d.old.confirms[p.ID] != now[p.ID] {
			d.tell(words.Name(p.Name), Accepts(p))
		}
	}
	retractGone(d, "confirm/", d.old.confirms, now)
	d.next.confirms = now
}

// compares keeps the code on this screen while the owner of a peer that was accepted here compares it.
func (d *diff) compares() {
	now := map[string]string{}
	for _, p := range d.Snapshot.Peers {
		if !question.Compares(d.Snapshot, p) {
			continue
		}
		now[p.ID] = p.Code
		// What was never seen to wait here may be a request that the lists do not have yet.
		waited := false
		for _, r := range d.old.requests {
			waited = waited || r.peer == p.ID && r.code == p.Code
		}
		if d.old.started && waited && d.old.compares[p.ID] != p.Code {
			who := words.Name(p.Name)
			d.tellOf(atOnce, who, Notice{
				Key: "compare/" + p.ID, Kind: Request, Title: who + " is accepted", Icon: icon.Offering, Lasts: true,
				Body: fmt.Sprintf("Its owner compares the code with this screen: %s. Nothing is signed before.", words.Code(p.Code)),
			})
		}
	}
	retractGone(d, "compare/", d.old.compares, now)
	d.next.compares = now
}

// Accepts is the notice of a peer that accepted, and waits for this owner; p.Confirm must be there.
func Accepts(p api.Peer) Notice {
	who := words.Name(p.Name)
	n := Notice{
		Key: "confirm/" + p.ID, Kind: Confirm, Title: who + " accepted: see its terms", Icon: icon.Peered,
		About: Subject{Peer: p.ID, Code: p.Confirm.Code, Terms: len(p.Confirm.Terms) > 0},
	}
	if p.Confirm.Code != "" {
		n.Title = fmt.Sprintf("%s accepted: does %s's screen show %s?", who, who, words.Code(p.Confirm.Code))
		// In the body, too: Xfce cuts titles.
		n.Body = fmt.Sprintf("Code %s: confirm only if its owner sees the same. Nothing is signed before.", words.Code(p.Confirm.Code))
	}
	if n.About.Terms {
		n.Body = lines(n.Body, "Its terms go beyond what you asked for.")
	}
	return n
}

// peers tells who under contract went, and who came back.
func (d *diff) peers() {
	now, known := map[string]relation{}, map[string]bool{}
	for _, p := range d.Snapshot.Peers {
		known[p.ID] = true
		was := d.old.peers[p.ID]
		is := relation{good: inUse(p.Outgoing) || inUse(p.Incoming), lost: p.Outgoing == api.StateUnreachable || p.Incoming == api.StateUnreachable}
		if is.lost {
			if is.since, is.told = was.since, was.told; !was.lost && was.good {
				is.since = d.Now
			}
		}
		is.last = was.last
		who, key := words.Name(p.Name), "reach/"+p.ID
		switch {
		case p.Tether != nil && p.Tether.Role == api.Laptop: // its events tell
		case is.waits() && p.Suspended && atStake(p) == "": // a colleague closed the lid, and nothing runs there
			is.told = true
		case is.waits() && !d.Now.Before(is.due()):
			is.told, is.last = true, d.Now
			d.tell(who, Notice{Key: key, Kind: PeerLost, Title: who + " cannot be reached", Body: lines(atStake(p), sentence(p.Why)), Icon: icon.Problem})
		case was.waits() && !is.lost: // it was a moment
		case was.lost && !is.lost && is.good:
			d.tell(who, Notice{Key: key, Kind: PeerBack, Title: who + " is back", Icon: icon.Peered, Low: true})
		case was.lost && !is.lost:
			d.retract(key)
		}
		if is.good || is.lost {
			now[p.ID] = is
		}
	}
	for id, was := range d.old.peers { // who is forgotten, and comes again, is missed anew
		if was.lost && !known[id] {
			d.retract("reach/" + id)
		}
	}
	d.next.peers = now
}

func inUse(s api.State) bool { return s == api.StateContracted || s == api.StateConnected }

// atStake says which pods are concerned.
func atStake(p api.Peer) string {
	switch abroad, guests := pods(p.Pods.Abroad), pods(p.Pods.Guests); {
	case p.Pods.Abroad > 0 && p.Pods.Guests > 0:
		return fmt.Sprintf("%s of yours run there, %s of its run here.", abroad, guests)
	case p.Pods.Abroad > 0:
		return abroad + " of yours run there."
	case p.Pods.Guests > 0:
		return guests + " of its run here."
	}
	return ""
}

func pods(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

// phaseRefused is the phase of a guest that hosting said no to.
const phaseRefused = "Refused"

// guests tells of those that were refused.
func (d *diff) guests() {
	now := map[string]bool{}
	for _, g := range d.Snapshot.Guests {
		if g.Phase != phaseRefused {
			continue
		}
		key := g.Namespace + "/" + g.Name
		now[key] = true
		if d.old.started && !d.old.refused[key] {
			who := words.Name(g.Consumer)
			d.tellOf("refused/"+g.ConsumerID, who, Notice{
				Key: "refused/" + key, Kind: GuestRefused, Title: "A pod of " + who + " was refused",
				Body: lines(words.Text(g.Name)+" does not run here.", sentence(g.Why)), Icon: icon.Problem,
			})
		}
	}
	for key := range d.old.refused {
		if !now[key] {
			d.passed = append(d.passed, "refused/"+key)
		}
	}
	d.next.refused = now
}

// maxTitle is how much of a title Xfce shows, in characters.
const maxTitle = 40

// policies tells what is shared otherwise than it was, whoever changed it.
func (d *diff) policies() {
	now := map[string]api.Policy{}
	for _, p := range d.Snapshot.Policies {
		now[p.Name] = p
		was, known := d.old.policies[p.Name]
		said := p.Since(was)
		if !d.old.started || !known || said == "" {
			continue
		}
		said = words.Text(words.Percent(said))
		title, body := "Sharing: "+said, "What was signed stays."
		if utf8.RuneCountInString(said) > maxTitle {
			title, body = "What is shared has changed", lines(sentence(said), body)
		}
		if p.Name != api.DefaultPolicy {
			body = lines("It is the policy "+words.Name(p.Name)+".", body)
		}
		d.tell(words.Name(p.Name), Notice{
			Key: "sharing/" + p.Name, Kind: Sharing, Title: title, Body: body, Icon: icon.Offering, About: Subject{Change: &Change{was, p}},
		})
	}
	d.next.policies = now
}
