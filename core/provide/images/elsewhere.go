package images

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"path"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/consume/images"
	"kith.dev/core/trust/identity"
)

// prompt is how long a holder may take for its first word: home is there, too.
const prompt = 4 * time.Second

// round asks home, and goes where it sends it: to another of its peers, the holder, that has the part already. If that does not give it, home does.
type round struct {
	h    *Homes
	home *peering.Client
}

// RoundTrip implements http.RoundTripper.
func (t round) RoundTrip(r *http.Request) (*http.Response, error) {
	return resume(r, t.ask, t.home.Bulk().CloseIdleConnections)
}

func (t round) ask(r *http.Request) (*http.Response, error) {
	resp, err := t.home.Bulk().RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusTemporaryRedirect {
		return resp, err
	}
	resp.Body.Close()
	if held := t.holder(r, resp.Header.Get(images.HeaderTicket)); held != nil {
		return held, nil
	}
	again := r.Clone(r.Context())
	again.Header.Del(images.HeaderElsewhere)
	return t.home.Bulk().RoundTrip(again)
}

// holder gives the answer of the holder that a ticket names; nil when there is none of use. It is asked only where this laptop knows it to be: an
// address that home named could be anything of this network.
func (t round) holder(r *http.Request, sent string) *http.Response {
	digest := path.Base(r.URL.Path)
	ticket, err := images.ReadTicket(sent, digest, time.Now())
	if err != nil {
		t.h.Log.Info("a guest's home sent us elsewhere with no good ticket", "err", err)
		return nil
	}
	client, known := t.h.Client(ticket.Holder.Compact())
	if !known {
		return nil
	}
	at, err := url.Parse(client.BaseURL() + images.HeldPath + digest)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(r.Context()) // which ends with the answer
	late := time.AfterFunc(prompt, cancel)
	q := r.Clone(ctx)
	q.URL, q.Host = at, at.Host
	q.Header.Del(images.HeaderElsewhere)
	q.Header.Set(images.HeaderTicket, sent)
	resp, err := client.Bulk().RoundTrip(q)
	if err == nil && late.Stop() && (resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent) {
		return resp
	}
	if err == nil {
		resp.Body.Close()
	}
	cancel()
	t.h.Log.Debug("a part of an image comes from home, for the peer that has it does not give it", "digest", digest, "peer", ticket.Holder.String(), "err", err)
	return nil
}

// Held answers a peer of a home whose guests are here, which sent it with a ticket. Whoever comes without one learns nothing.
func (h *Homes) Held(w http.ResponseWriter, r *http.Request, taker identity.ID) {
	digest := r.PathValue("digest")
	ticket, err := images.ReadTicket(r.Header.Get(images.HeaderTicket), digest, time.Now())
	consumer := ticket.Home.Compact()
	most, allowed := h.Rate(consumer)
	if err != nil || ticket.Taker != taker || ticket.Holder != h.Me || !allowed || !h.Hands(r.Context(), consumer, ticket.Image) {
		peering.WriteProblem(w, &peering.Problem{Code: peering.CodeNotFound, Message: "no such part of an image here for this cluster"})
		return
	}
	h.Giver.Hand(w, r, taker, ticket.Image, digest, func(body io.ReadCloser) io.ReadCloser {
		if limit := h.limit(consumer, most); limit != nil {
			return &limited{body, r.Context(), limit}
		}
		return body
	})
}
