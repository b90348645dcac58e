package virtualnode

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kith.dev/core/api/v1alpha1"
)

type podOption func(*corev1.Pod)

func homePod(options ...podOption) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "home-1", Generation: 1},
		Spec: corev1.PodSpec{NodeName: "kith-bob", RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
	}
	for _, o := range options {
		o(pod)
	}
	return pod
}

func deletedWithin(seconds int64) podOption {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, &seconds
	}
}

func phase(ph corev1.PodPhase) podOption { return func(p *corev1.Pod) { p.Status.Phase = ph } }

type offloadedOption func(*v1alpha1.OffloadedPod)

func asked(options ...offloadedOption) *v1alpha1.OffloadedPod {
	o := offloadedPod(homePod(), "shop-alice")
	for _, option := range options {
		option(o)
	}
	return o
}

func leaving(o *v1alpha1.OffloadedPod) { o.DeletionTimestamp = &metav1.Time{Time: time.Now()} }

func over(o *v1alpha1.OffloadedPod) { o.Status.Phase = v1alpha1.OffloadedPodFailed }

func ofPod(uid types.UID) offloadedOption {
	return func(o *v1alpha1.OffloadedPod) { o.Spec.HomeUID = uid }
}

func told(seconds string) offloadedOption {
	return func(o *v1alpha1.OffloadedPod) { o.Annotations = map[string]string{v1alpha1.AnnotationGrace: seconds} }
}

func TestDecide(t *testing.T) {
	otherImage := func(p *corev1.Pod) { p.Spec.Containers[0].Image = "web:2" }
	for name, tc := range map[string]struct {
		home   *corev1.Pod
		abroad *v1alpha1.OffloadedPod
		want   step
	}{
		"nothing anywhere":                           {nil, nil, stepWait},
		"a pod without its home pod goes":            {nil, asked(), stepRemove},
		"and is asked to go once":                    {nil, asked(leaving), stepWait},
		"a new pod is asked for":                     {homePod(), nil, stepCreate},
		"a pod that ended is not run again":          {homePod(phase(corev1.PodSucceeded)), nil, stepWait},
		"a running pod is reported":                  {homePod(), asked(), stepReport},
		"a pod that ended keeps its logs abroad":     {homePod(phase(corev1.PodFailed)), asked(over), stepReport},
		"a pod that home calls ended is ended":       {homePod(phase(corev1.PodFailed)), asked(), stepRemove},
		"a changed pod is told":                      {homePod(otherImage), asked(), stepUpdate},
		"but not after its end":                      {homePod(otherImage, phase(corev1.PodFailed)), asked(over), stepReport},
		"one of an earlier pod of that name goes":    {homePod(), asked(ofPod("home-0")), stepRemove},
		"and the new one waits for its end":          {homePod(), asked(ofPod("home-0"), leaving), stepWait},
		"deleted abroad by somebody":                 {homePod(), asked(leaving), stepReport},
		"a deleted pod is deleted abroad":            {homePod(deletedWithin(30)), asked(), stepRemove},
		"and reported until it ended":                {homePod(deletedWithin(30)), asked(leaving), stepReport},
		"a shorter grace is passed on":               {homePod(deletedWithin(1)), asked(leaving), stepRemove},
		"once":                                       {homePod(deletedWithin(1)), asked(leaving, told("1")), stepReport},
		"a deleted pod goes when it is gone abroad":  {homePod(deletedWithin(30)), nil, stepFinish},
		"also when another pod took its name abroad": {homePod(deletedWithin(30)), asked(ofPod("home-0")), stepFinish},
	} {
		if got := decide(tc.home, tc.abroad); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// Home's classes stay at home; what they come to is told, unless it is what every pod has.
func TestAPrioritySaysItsValueAbroad(t *testing.T) {
	preempts, never := corev1.PreemptLowerPriority, corev1.PreemptNever
	for name, c := range map[string]struct {
		priority int32
		policy   *corev1.PreemptionPolicy
		says     string
	}{
		"as every pod":          {0, &preempts, "nothing, nothing"},
		"more":                  {1000, &preempts, "1000, nothing"},
		"less, and with no one": {-7, &never, "-7, Never"},
		"no policy":             {5, nil, "5, nothing"},
	} {
		got := template(homePod(func(p *corev1.Pod) {
			p.Spec.PriorityClassName, p.Spec.Priority, p.Spec.PreemptionPolicy = "of-home", &c.priority, c.policy
		})).Spec
		said := []string{"nothing", "nothing"}
		if got.Priority != nil {
			said[0] = fmt.Sprint(*got.Priority)
		}
		if got.PreemptionPolicy != nil {
			said[1] = string(*got.PreemptionPolicy)
		}
		if is := strings.Join(said, ", "); is != c.says || got.PriorityClassName != "" {
			t.Errorf("%s: says %s and class %q, want %s", name, is, got.PriorityClassName, c.says)
		}
	}
}

func TestTemplateLeavesOutWhatBelongsToHome(t *testing.T) {
	seconds := int64(5)
	pod := homePod(func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "web"}
		p.Annotations = map[string]string{"note": "kept", corev1.LastAppliedConfigAnnotation: "{}"}
		p.Spec.NodeSelector = map[string]string{"kubernetes.io/arch": "arm64", "kith.dev/peer": "bob"}
		p.Spec.Tolerations = []corev1.Toleration{{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpExists}}
		p.Spec.PriorityClassName, p.Spec.Priority = "high", new(int32)
		p.Spec.ServiceAccountName = "web"
		p.Spec.TerminationGracePeriodSeconds = &seconds
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/lb"}}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "kube-api-access-x7", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
			{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
			{Name: "kube-api-access-x7", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}, {Name: "data", MountPath: "/data"}}
	})
	before := pod.DeepCopy()
	got := template(pod)
	want := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "kept"}},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyAlways,
			NodeSelector:                  map[string]string{"kubernetes.io/arch": "arm64"},
			TerminationGracePeriodSeconds: &seconds,
			AutomountServiceAccountToken:  new(bool),
			Volumes:                       pod.Spec.Volumes[1:],
			Containers: []corev1.Container{{Name: "web", Image: "web:1",
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
		},
	}
	if !sameTemplate(&got, &want) {
		t.Errorf("template:\n%+v\nwant:\n%+v", got, want)
	}
	if !sameTemplate(&corev1.PodTemplateSpec{ObjectMeta: before.ObjectMeta, Spec: before.Spec},
		&corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}) {
		t.Error("the home pod itself was changed")
	}
}
