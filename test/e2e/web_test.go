//go:build lab

package e2e

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"kith.dev/test/chromium"
	"kith.dev/test/lab"
)

// residentKB is the memory of a laptop's kithd, in kB.
func residentKB(t *testing.T, p *lab.Laptop) int {
	t.Helper()
	out, _, err := p.Exec(t.Context(), "sh", "-c", "grep VmRSS /proc/$(pidof kithd)/status")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(out)
	kb, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(out)
	}
	return kb
}

// answersByThePage has alice do by the page of `kith web`, in a Chromium on her laptop, what bob's request needs: she answers it, changes what
// she shares and sees bob's pod come. They know each other's keys.
func answersByThePage(t *testing.T, alice, bob *lab.Laptop) {
	if _, err := exec.LookPath(chromium.Program); err != nil {
		t.Skip(err)
	}
	const dir = "/run/page"
	if err := os.MkdirAll(alice.Path(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	browser, err := chromium.Start(alice.Path(dir), dir, func(ctx context.Context, args []string) error {
		return alice.Run(ctx, lab.Command{Args: args, Stderr: t.Output()})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer browser.Close()
	before := residentKB(t, alice)
	page := browser.Page(t)
	page.Open(strings.TrimSpace(kith(t, alice, "web", "--no-open")))
	page.WaitText(30*time.Second, "#name", "alice")
	page.WaitText(30*time.Second, "#peers", "bob")
	page.WaitText(30*time.Second, "#pods-list", "shop/web-")
	t.Logf("kithd has %d kB, %d kB before the page was open", residentKB(t, alice), before)

	kith(t, bob, "peer", "alice", "--wait=false")
	page.WaitText(30*time.Second, "#waiting-list", "bob asks to use this laptop")
	page.Click("#waiting-list button", "Answer")
	page.WaitText(10*time.Second, "#question", "It would get")
	picture(t, page, "page-request")
	page.Click("#question button", "Accept")
	page.WaitText(10*time.Second, "#said", "bob was accepted.")
	eventually(t, time.Minute, "bob uses alice", func() string {
		if p := peerOf(t, bob, "alice"); p.Outgoing != "connected" {
			return "bob has " + p.Outgoing + " of alice"
		}
		return ""
	})
	page.WaitText(30*time.Second, "#peers", "0 pods here")

	page.Eval(`document.getElementById("share-cpu").focus()`, nil)
	page.Press("ArrowLeft", "ArrowLeft")
	page.WaitText(30*time.Second, "#share-would", "It would be: cpu 50% → 40%")
	page.Click("#share-apply", "Apply")
	page.WaitText(30*time.Second, "#share-would", "Changed: cpu 50% → 40%")
	if events := kith(t, alice, "events"); !strings.Contains(events, "the sharing policy default was changed: cpu 50% → 40%") {
		t.Error(events)
	}

	kubectl(t, bob, "create", "namespace", "work")
	kith(t, bob, "offload", "work", "--strategy", "remote")
	kubectl(t, bob, "-n", "work", "run", "job", "--image", "kith.dev/echo:1", "--image-pull-policy=IfNotPresent", "--restart=Never")
	page.Wait(2*time.Minute, "bob's pod", `[...document.querySelectorAll("#pods-list tbody tr")].some(r => r.innerText.includes("/job") && r.innerText.includes("bob") && r.innerText.includes("runs"))`)
	page.WaitText(30*time.Second, "#peers", "1 pod here")

	var first []time.Duration
	for range 5 {
		page.Reload()
		page.WaitText(30*time.Second, "#pods-list", "/job")
		first = append(first, page.FirstPaint().Round(time.Millisecond))
	}
	t.Logf("first paint after %v", first)
	if axe, err := os.ReadFile("../../build/axe.min.js"); err != nil {
		t.Logf("%v: scripts/axe.sh fetches it", err)
	} else {
		for _, dark := range []bool{false, true} {
			page.Dark(dark)
			for _, broken := range page.Axe(string(axe)) {
				t.Errorf("dark %v: %s", dark, broken)
			}
			picture(t, page, map[bool]string{false: "page", true: "page-dark"}[dark])
		}
	}
	for _, said := range page.Said() {
		t.Errorf("the browser says %s", said)
	}
}

// picture keeps one of the page in build/screenshots. Those of docs/web.md are from there.
func picture(t *testing.T, page *chromium.Page, name string) {
	t.Helper()
	const dir = "../../build/screenshots"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	page.Picture(dir + "/" + name + ".webp")
}
