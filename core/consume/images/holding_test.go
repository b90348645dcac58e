package images

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/trust/identity"
)

// TestALayerIsSentForToWhereItIs: large layers are, once each, by those who know what a ticket is.
func TestALayerIsSentForToWhereItIs(t *testing.T) {
	large := strings.Repeat("x", worth)
	s := &store{parts: map[string]string{"docker.io/shop/web:dev " + layer: large, "docker.io/shop/web:dev " + foreign: large[1:], "docker.io/shop/web:dev ": "m"}}
	home, bob, carol, dave := someone(t), someone(t), someone(t), someone(t)
	g := New(s, home, slog.New(slog.DiscardHandler))
	has := true
	ask := func(method, who, path, elsewhere, rng string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, Path+"shop/web/"+path+"?ns=docker.io", nil)
		r.Header.Set(HeaderElsewhere, elsewhere)
		r.Header.Set("Range", rng)
		w := httptest.NewRecorder()
		taker := map[string]*identity.Identity{"carol": carol, "dave": dave}[who]
		g.Serve(w, r, Peer{Name: who, ID: taker.ID(), Pods: []*corev1.Pod{pod("shop/web:dev")}, Holder: func(image string) (identity.ID, string, bool) {
			return bob.ID(), heldImage, has && image == "docker.io/shop/web:dev"
		}})
		return w
	}
	for _, c := range []struct {
		what, method, path, elsewhere, rng string
		status                             int
	}{
		{"one who knows no tickets", "GET", "blobs/" + layer, "", "", 200},
		{"a head", "HEAD", "blobs/" + layer, "yes", "", 200},
		{"what is small", "GET", "blobs/" + foreign, "yes", "", 200},
		{"the rest of a layer, when that is small", "GET", "blobs/" + layer, "yes", "bytes=1-", 206},
		{"what a name means", "GET", "manifests/dev", "yes", "", 200},
		{"a layer", "GET", "blobs/" + layer, "yes", "", 307},
		{"the same once more: it was not to be had there", "GET", "blobs/" + layer, "yes", "", 200},
	} {
		w := ask(c.method, "carol", c.path, c.elsewhere, c.rng)
		if w.Code != c.status || (w.Header().Get(HeaderTicket) != "") != (c.status == http.StatusTemporaryRedirect) {
			t.Errorf("%s: %d %v", c.what, w.Code, w.Header())
		}
		if c.status != http.StatusTemporaryRedirect {
			continue
		}
		ticket, err := ReadTicket(w.Header().Get(HeaderTicket), layer, time.Now())
		if err != nil || ticket.Home != home.ID() || ticket.Holder != bob.ID() || ticket.Taker != carol.ID() || ticket.Image != heldImage || w.Body.Len() > 0 {
			t.Errorf("%+v %v", ticket, err)
		}
	}
	has = false
	if w := ask("GET", "dave", "blobs/"+layer, "yes", ""); w.Code != 200 {
		t.Errorf("nobody has it: %d", w.Code)
	}
	if has = true; s.open != 0 {
		t.Errorf("%d parts stay open", s.open)
	}
	if w := ask("GET", "dave", "blobs/"+layer, "yes", ""); w.Code != 307 {
		t.Errorf("somebody has it now: %d", w.Code)
	}
}

func TestWhatRunsFromAnImage(t *testing.T) {
	runs := func(image, id string, state corev1.ContainerState) *corev1.Pod {
		p := pod(image, "shop/other:1")
		p.Spec.Containers[0].Name, p.Spec.Containers[1].Name = "web", "other"
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", ImageID: id, State: state}, {Name: "other", State: state}}
		return p
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for what, c := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"it runs":                        {runs("shop/web:dev", heldImage, running), true},
		"it is pulled":                   {runs("shop/web:dev", "", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}), false},
		"it ended":                       {runs("shop/web:dev", heldImage, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}), false},
		"the node says no digest of one": {runs("shop/web:dev", manifest, running), false},
		"of another name":                {runs("shop/web:old", heldImage, running), false},
		"nothing is known of it":         {pod("shop/web:dev"), false},
	} {
		id, is := RunsFrom([]*corev1.Pod{pod(), c.pod}, "docker.io/shop/web:dev")
		if is != c.want || is && (id != heldImage || !Runs(c.pod, heldImage)) || Runs(c.pod, manifest) {
			t.Errorf("%s: %s %t", what, id, is)
		}
	}
}
