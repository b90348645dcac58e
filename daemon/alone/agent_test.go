package alone

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"kith.dev/core/api"
	"kith.dev/daemon/config"
)

func TestTheAgentOfANodeSaysWhichKithdWorks(t *testing.T) {
	lease := func(holder string, ago time.Duration) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kith-system", Name: "kith"}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: time.Now().Add(-ago)},
		}}
	}
	for name, c := range map[string]struct {
		lease *coordinationv1.Lease
		fails error
		state api.CheckState
		says  []string
	}{
		"one works":           {lease: lease("corp-1_kith-abc", 3*time.Second), state: api.CheckOK, says: []string{"that of node corp-1 holds the lease kith-system/kith", "-n kith-system exec kith-abc -- kith doctor"}},
		"it does not renew":   {lease: lease("corp-1_kith-abc", time.Minute), state: api.CheckFail, says: []string{"none works", "node corp-1 did not renew it"}},
		"it gave it back":     {lease: lease("", 3*time.Second), state: api.CheckFail, says: []string{"none works", "gave it back"}},
		"none was ever there": {state: api.CheckFail, says: []string{"none works", "is not there"}},
		"nobody to ask":       {fails: errors.New("no route"), state: api.CheckFail, says: []string{"cannot be asked", "no route"}},
	} {
		all := fake.NewClientset()
		if c.lease != nil {
			_ = all.Tracker().Add(c.lease)
		}
		f := agent(t.Context(), func() (kubernetes.Interface, error) { return all, c.fails }, "corp-2", "kith-system/kith")
		text := strings.Join([]string{f.What, f.Why, f.Do}, "\n")
		for _, s := range append(c.says, "this is the agent of node corp-2, and no kithd", "kubectl -n kith-system") {
			if !strings.Contains(text, s) {
				t.Errorf("%s: it does not say %q: %s", name, s, text)
			}
		}
		if f.State != c.state || f.Area != api.AreaDaemon || f.Name != "agent" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// The configuration is kithd's, and not there: what would be looked at by its defaults is somebody else's.
func TestAnAgentLooksAtNothingElse(t *testing.T) {
	t.Setenv(api.EnvAgentLease, "kith-system/kith")
	t.Setenv(api.EnvAgentNode, "corp-2")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	var out bytes.Buffer
	err := Doctor(context.Background(), func() (config.Config, error) { t.Error("the configuration was read"); return config.Default(), nil }, &out)
	if err != nil {
		t.Fatal(err)
	}
	var f api.Finding
	if err := json.Unmarshal(out.Bytes(), &f); err != nil || f.Name != "agent" || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("%v %s", err, out.String())
	}
}
