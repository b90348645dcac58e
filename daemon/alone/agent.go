package alone

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kith.dev/core/api"
	"kith.dev/core/local/cluster"
	"kith.dev/daemon/leader"
)

// inCluster is a client with the account of the pod that this runs in.
func inCluster() (kubernetes.Interface, error) {
	rest, err := cluster.Config("", "")
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(rest)
}

// agentPatience is for one question to the API server.
const agentPatience = 10 * time.Second

// agent says what runs on this node in place of a kithd, and where the kithd is that works: who holds the lease, NAMESPACE/NAME.
func agent(ctx context.Context, connect func() (kubernetes.Interface, error), node, lease string) api.Finding {
	f := api.Finding{Area: api.AreaDaemon, Name: "agent", State: api.CheckFail}
	here := "this is the agent of node " + cmp.Or(node, "(unknown)") + ", and no kithd"
	namespace, name, _ := strings.Cut(lease, "/")
	pods := fmt.Sprintf("kubectl -n %s get pods -o wide shows whether one runs, and kubectl -n %s logs POD why it does not work", namespace, namespace)
	ctx, cancel := context.WithTimeout(ctx, agentPatience)
	defer cancel()
	c, err := connect()
	if err != nil {
		f.What, f.Why, f.Do = here+"; which one works cannot be asked", err.Error(), pods
		return f
	}
	is, err := c.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		f.What, f.Why, f.Do = here+"; none works in this cluster", "the lease "+lease+" is not there: none has ever held it", pods
		return f
	case err != nil:
		f.What, f.Why, f.Do = here+"; which one works cannot be asked", err.Error(), pods
		return f
	}
	ends, holder := leader.Ends(is), ""
	if !ends.IsZero() {
		holder = *is.Spec.HolderIdentity
	}
	switch on := leader.Node(holder); {
	case holder == "":
		f.What, f.Why, f.Do = here+"; none works in this cluster", "nobody holds the lease "+lease+": the last one gave it back", pods
	case time.Now().After(ends):
		f.What = here + "; none works in this cluster"
		f.Why = fmt.Sprintf("nobody holds the lease %s: that of node %s did not renew it, and it ended at %s", lease, on, ends.UTC().Format(time.RFC3339))
		f.Do = pods
	default:
		f.State = api.CheckOK
		f.What = fmt.Sprintf("%s; that of node %s holds the lease %s, and works for all nodes", here, on, lease)
		if pod := leader.Pod(holder); pod != "" {
			f.Do = fmt.Sprintf("ask that one: kubectl -n %s exec %s -- kith doctor", namespace, pod)
		}
	}
	return f
}
