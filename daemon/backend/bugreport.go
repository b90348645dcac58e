package backend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/daemon/bugreport"
)

// mostObjects of a kind are in a bug report.
const mostObjects = 500

// BugReport writes an archive of what is known here, and of nothing that is secret (daemon/bugreport).
func (b *Backend) BugReport(ctx context.Context, to io.Writer) error {
	return bugreport.Write(ctx, to, time.Now(), b.reportParts())
}

func (b *Backend) reportParts() []bugreport.Part {
	var silent error // why the API server does not answer: it is not asked for each part again
	parts := []bugreport.Part{
		{Name: "version.json", What: "the versions of kithd and its Kubernetes", Make: func(ctx context.Context) ([]byte, error) {
			v, err := b.Version(ctx)
			return scrubbed(v, err, true)
		}},
		{Name: "snapshot.json", What: "what kith status, peers, requests, share and guests show", Make: func(ctx context.Context) ([]byte, error) {
			s, err := b.Snapshot(ctx)
			return scrubbed(s, err, true)
		}},
		{Name: "doctor.json", What: "what kith doctor finds", Make: func(ctx context.Context) ([]byte, error) {
			found, err := b.Doctor(ctx, "", func(api.Progress) {})
			return scrubbed(found, err, true)
		}},
	}
	for _, kind := range []struct {
		name string
		list client.ObjectList
	}{
		{"peers", &v1alpha1.PeerList{}}, {"peeringrequests", &v1alpha1.PeeringRequestList{}}, {"contracts", &v1alpha1.ContractList{}},
		{"advertisements", &v1alpha1.AdvertisementList{}}, {"sharingpolicies", &v1alpha1.SharingPolicyList{}},
		{"tetherpolicies", &v1alpha1.TetherPolicyList{}}, {"reflectionpolicies", &v1alpha1.ReflectionPolicyList{}},
		{"peeringpolicies", &v1alpha1.PeeringPolicyList{}}, {"namespaceoffloadings", &v1alpha1.NamespaceOffloadingList{}},
	} {
		parts = append(parts, b.fromCluster(&silent, "objects/"+kind.name+".yaml", "the "+kind.name+" of this cluster", kind.list,
			func() ([]byte, error) { return scrubbed(kind.list, nil, false) }))
	}
	nodes, pods := &corev1.NodeList{}, &corev1.PodList{}
	parts = append(parts,
		b.fromCluster(&silent, "cluster/nodes.txt", "its nodes, in summary", nodes, func() ([]byte, error) { return nodeSummary(nodes), nil }),
		b.fromCluster(&silent, "cluster/pods.txt", "its pods, in summary: no environments, arguments and volumes", pods, func() ([]byte, error) { return podSummary(pods), nil }))
	if b.Metrics != nil {
		parts = append(parts, bugreport.Part{Name: "metrics.txt", What: "the metrics of kithd", Make: func(context.Context) ([]byte, error) {
			var text bytes.Buffer
			err := b.Metrics(&text)
			return text.Bytes(), err
		}})
	}
	parts = append(parts, bugreport.OwnLog())
	if b.Engine != nil {
		if file := b.Engine.Facts().Log; file != "" {
			parts = append(parts, bugreport.Log("logs/engine.log", "the log of the built-in Kubernetes", file))
		}
	}
	if b.Settings.Profiling {
		parts = append(parts, bugreport.Profiles()...)
	}
	return append(parts, bugreport.System()...)
}

// fromCluster is a part that is made of a list of objects. silent is shared by those of a report: who had no answer in time has none for the others.
func (b *Backend) fromCluster(silent *error, name, what string, list client.ObjectList, write func() ([]byte, error)) bugreport.Part {
	return bugreport.Part{Name: name, What: what, Make: func(ctx context.Context) ([]byte, error) {
		c := b.Cluster()
		if c == nil {
			return nil, errors.New("the controllers of Kith do not run")
		}
		if *silent != nil {
			return nil, *silent
		}
		if err := c.Fresh.List(ctx, list, client.Limit(mostObjects)); err != nil {
			if ctx.Err() != nil {
				*silent = err
			}
			return nil, err
		}
		text, err := write()
		if list.GetContinue() != "" && err == nil {
			err = fmt.Errorf("there are more than %d", mostObjects)
		}
		return text, err
	}}
}

// scrubbed writes a value as JSON or YAML without what is none of its reader's business.
func scrubbed(v any, failed error, asJSON bool) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return nil, errors.Join(failed, err)
	}
	scrub(plain)
	if asJSON {
		text, err = json.MarshalIndent(plain, "", "  ")
		text = append(text, '\n')
	} else {
		text, err = yaml.Marshal(plain)
	}
	return text, errors.Join(failed, err)
}

// scrub takes out, at any depth: six-digit codes, which are to be compared by two people and nobody else, who wrote which field, and all
// annotations but Kith's own. What kubectl keeps in one is the whole object as it was applied.
func scrub(v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			scrub(item)
		}
	case map[string]any:
		delete(v, "managedFields")
		delete(v, "code")
		if annotations, ok := v["annotations"].(map[string]any); ok {
			for key := range annotations {
				if !strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") {
					delete(annotations, key)
				}
			}
		}
		for _, item := range v {
			scrub(item)
		}
	}
}

func nodeSummary(nodes *corev1.NodeList) []byte {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tVERSION\tCPU\tMEMORY\tPODS\tUNSCHEDULABLE\tTAINTS\tCONDITIONS")
	for i := range nodes.Items {
		n := &nodes.Items[i]
		var taints, conditions []string
		for _, t := range n.Spec.Taints {
			taints = append(taints, t.Key+":"+string(t.Effect))
		}
		for _, c := range n.Status.Conditions {
			conditions = append(conditions, fmt.Sprintf("%s=%s(%s)", c.Type, c.Status, c.Reason))
		}
		free := n.Status.Allocatable
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%t\t%s\t%s\n", n.Name, n.Status.NodeInfo.KubeletVersion, free.Cpu(), free.Memory(), free.Pods(), n.Spec.Unschedulable,
			strings.Join(taints, ","), strings.Join(conditions, ","))
	}
	w.Flush()
	return b.Bytes()
}

func podSummary(pods *corev1.PodList) []byte {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tNAME\tPHASE\tREASON\tNODE\tADDRESS\tCREATED\tCONTAINERS")
	for i := range pods.Items {
		p := &pods.Items[i]
		var containers []string
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			containers = append(containers, fmt.Sprintf("%s(ready=%t restarts=%d %s)", c.Name, c.Ready, c.RestartCount, containerState(c.State)))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Namespace, p.Name, p.Status.Phase, p.Status.Reason, p.Spec.NodeName, p.Status.PodIP,
			p.CreationTimestamp.UTC().Format(time.RFC3339), strings.Join(containers, " "))
	}
	w.Flush()
	return b.Bytes()
}

func containerState(s corev1.ContainerState) string {
	switch {
	case s.Waiting != nil:
		return "waiting: " + s.Waiting.Reason
	case s.Terminated != nil:
		return fmt.Sprintf("ended: %s, exit code %d", s.Terminated.Reason, s.Terminated.ExitCode)
	case s.Running != nil:
		return "running since " + s.Running.StartedAt.UTC().Format(time.RFC3339)
	}
	return string(metav1.ConditionUnknown)
}
