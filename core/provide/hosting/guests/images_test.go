package guests

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
)

const digest = "@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func TestRegistriesOfTheProvidersNetworkAreClosed(t *testing.T) {
	open := grants.ImageRules{Registries: []string{"registry.lan:5000", "http://10.0.0.9:5000", "ghcr.io"}, Present: []string{"kith.dev/*"}}
	offline := open
	offline.Offline = true
	home := open // podman's names, of what was built there
	home.Home = true
	for image, fits := range map[string]bool{"localhost/web:dev": true, "localhost:5000/web:dev": false, "127.0.0.1/web": false, "nas.local/x": false, "nginx": true} {
		if no := home.Refuse("image", image); (no == nil) != fits {
			t.Errorf("%s, homes are asked: %v", image, no)
		}
	}
	home.Offline = true
	if home.Refuse("image", "localhost/web:dev") == nil {
		t.Error("localhost/web:dev, homes are asked and the internet is denied: not refused")
	}
	for _, c := range []struct {
		image         string
		open, offline bool
	}{
		{"nginx", true, false},
		{"library/nginx:1", true, false},
		{"docker.io/library/nginx:1", true, false},
		{"quay.io/a/b:1", true, false},
		{"1.1.1.1/x", true, false},
		{"[2606:4700::1111]:443/x", true, false},
		{"ghcr.io/a/b" + digest, true, true},
		{"registry.lan:5000/x", true, true},
		{"10.0.0.9:5000/x", true, true},
		{"kith.dev/echo:1", true, true},
		{"nginx" + digest, true, false},
		{"127.0.0.1:631/x", false, false},
		{"127.0.0.1:631/x" + digest, false, false},
		{"[::1]:631/x", false, false},
		{"[::ffff:7f00:1]:631/x", false, false},
		{"[::ffff:127.0.0.1]:631/x", true, true}, // is no name at all: the kubelet says so
		{"[fe80::1]:5000/x", false, false},
		{"[fd00::1]:5000/x", false, false},
		{"localhost/x", false, false},
		{"localhost:5000/x", false, false},
		{"LOCALHOST:5000/x", false, false},
		{"192.168.1.1/x", false, false},
		{"10.0.0.9/x", false, false},
		{"10.0.0.9:5001/x", false, false},
		{"100.64.0.1/x", false, false},
		{"169.254.169.254/latest", false, false},
		{"0.0.0.0:5000/x", false, false},
		{"registry.lan/x", false, false},
		{"registry.lan:5000.evil.example/x", true, true}, // neither
		{"nas.local/x", false, false},
		{"nas:5000/x", false, false},
	} {
		if no := open.Refuse("image of container c", c.image); (no == nil) != c.open {
			t.Errorf("%s: %v", c.image, no)
		} else if no != nil && (no.Reason != grants.ReasonImage || !strings.Contains(no.Message, "image of container c")) {
			t.Errorf("%s: %v", c.image, no)
		}
		if no := offline.Refuse("image of container c", c.image); (no == nil) != c.offline {
			t.Errorf("%s, internet denied: %v", c.image, no)
		}
	}
}

func TestPresentImagesAreNotAGuestsForAGuessedName(t *testing.T) {
	rules := grants.ImageRules{Present: []string{"kith.dev/*", "postgres:17", "*/shared:*"}}
	for _, c := range []struct {
		image string
		asked corev1.PullPolicy
		want  corev1.PullPolicy
	}{
		{"company.example/secret:1", "", corev1.PullAlways},
		{"company.example/secret:1", corev1.PullIfNotPresent, corev1.PullAlways},
		{"company.example/secret:1", corev1.PullNever, corev1.PullAlways},
		{"company.example/secret:1" + digest, corev1.PullIfNotPresent, corev1.PullIfNotPresent},
		{"company.example/secret:1" + digest, corev1.PullNever, corev1.PullNever},
		{"sha256:" + strings.Repeat("a", 64), corev1.PullIfNotPresent, corev1.PullAlways}, // the ID of an image here
		{strings.Repeat("a", 64), corev1.PullNever, corev1.PullAlways},
		{"aaaa", corev1.PullNever, corev1.PullAlways}, // or its beginning
		{"kith.dev/echo:1", corev1.PullNever, corev1.PullNever},
		{"kith.dev.evil.example/echo:1", corev1.PullNever, corev1.PullAlways},
		{"postgres:17", corev1.PullIfNotPresent, corev1.PullIfNotPresent},
		{"docker.io/library/postgres:17", corev1.PullIfNotPresent, corev1.PullIfNotPresent},
		{"postgres:170", corev1.PullIfNotPresent, corev1.PullAlways},
		{"postgres", corev1.PullIfNotPresent, corev1.PullAlways},
		{"ghcr.io/team/shared", corev1.PullIfNotPresent, corev1.PullIfNotPresent}, // its tag is latest
	} {
		if got := rules.Pull(c.image, c.asked); got != c.want {
			t.Errorf("%s, %q: pull policy %q, want %q", c.image, c.asked, got, c.want)
		}
	}
	// Wherever a pod can name one.
	image := corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i", Image: "a/b:1", ImagePullPolicy: corev1.PullNever}},
		Containers:     []corev1.Container{{Name: "c", Image: "a/b:1", ImagePullPolicy: corev1.PullNever}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			Image: &corev1.ImageVolumeSource{Reference: "a/b:1", PullPolicy: corev1.PullNever}}}},
	}
	seen := 0
	pod := guestOf(image, bobsTerms(v1alpha1.PodSecurityPrivileged))
	eachImage(&pod.Spec, func(field string, _ *string, policy *corev1.PullPolicy) {
		if seen++; *policy != corev1.PullAlways {
			t.Errorf("%s: %s", field, *policy)
		}
	})
	if seen != 3 {
		t.Errorf("%d images", seen)
	}
}

// TestARunningGuestTakesNoImageThatIsHere: its pull policy cannot change any more.
func TestARunningGuestTakesNoImageThatIsHere(t *testing.T) {
	spec := func(image string) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image, ImagePullPolicy: corev1.PullIfNotPresent}}}
	}
	terms := bobsTerms("baseline")
	running := guestOf(spec("a/b:1"+digest), terms)
	next := running.DeepCopy()
	if _, cannot := syncInPlace(next, guestOf(spec("company.example/secret:1"), terms)); len(cannot) != 1 || next.Spec.Containers[0].Image != "a/b:1"+digest {
		t.Errorf("the image became %s, %v", next.Spec.Containers[0].Image, cannot)
	}
	running = guestOf(spec("a/b:1"), terms)
	for image, allowed := range map[string]bool{"a/b:2": true, "192.168.1.1/b:2": false} {
		next, want := running.DeepCopy(), guestOf(spec(image), terms)
		no := keepImages(want, running, terms.Images)
		changed, cannot := syncInPlace(next, want)
		if (no == nil) != allowed || changed != allowed || len(cannot) > 0 {
			t.Errorf("%s: %v, changed %v, cannot %v", image, no, changed, cannot)
		}
	}
}
