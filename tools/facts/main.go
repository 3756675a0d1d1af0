// Command facts writes facts about the served kinds from the published Kubernetes modules: JSON fields in order, their types,
// which are omitted when empty, protobuf numbers, list and map types, merge keys, names of definitions, required fields and
// enums. Names and numbers only.
//
// It also writes objects of all kinds in both of their forms, for tests to compare with.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"reflect"
	"sort"
	"strings"

	admission "k8s.io/api/admission/v1"
	apidiscovery "k8s.io/api/apidiscovery/v2"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// served lists every group and version that a v1.36 server serves with its default settings.
var served = []schema.GroupVersion{
	{Version: "v1"},
	{Group: "admissionregistration.k8s.io", Version: "v1"},
	{Group: "apiextensions.k8s.io", Version: "v1"},
	{Group: "apiregistration.k8s.io", Version: "v1"},
	{Group: "apps", Version: "v1"},
	{Group: "authentication.k8s.io", Version: "v1"},
	{Group: "authorization.k8s.io", Version: "v1"},
	{Group: "autoscaling", Version: "v1"},
	{Group: "autoscaling", Version: "v2"},
	{Group: "batch", Version: "v1"},
	{Group: "certificates.k8s.io", Version: "v1"},
	{Group: "coordination.k8s.io", Version: "v1"},
	{Group: "discovery.k8s.io", Version: "v1"},
	{Group: "events.k8s.io", Version: "v1"},
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"},
	{Group: "networking.k8s.io", Version: "v1"},
	{Group: "node.k8s.io", Version: "v1"},
	{Group: "policy", Version: "v1"},
	{Group: "rbac.authorization.k8s.io", Version: "v1"},
	{Group: "resource.k8s.io", Version: "v1"},
	{Group: "scheduling.k8s.io", Version: "v1"},
	{Group: "storage.k8s.io", Version: "v1"},
}

// spoken lists kinds that are sent on the wire without being a resource.
var spoken = map[schema.GroupVersionKind]any{
	{Group: "admission.k8s.io", Version: "v1", Kind: "AdmissionReview"}:          admission.AdmissionReview{},
	{Group: "apiextensions.k8s.io", Version: "v1", Kind: "ConversionReview"}:     apiextensions.ConversionReview{},
	{Group: "apidiscovery.k8s.io", Version: "v2", Kind: "APIGroupDiscoveryList"}: apidiscovery.APIGroupDiscoveryList{},
	{Group: "meta.k8s.io", Version: "v1", Kind: "CreateOptions"}:                 meta.CreateOptions{},
	{Group: "meta.k8s.io", Version: "v1", Kind: "DeleteOptions"}:                 meta.DeleteOptions{},
	{Group: "meta.k8s.io", Version: "v1", Kind: "PatchOptions"}:                  meta.PatchOptions{},
	{Group: "meta.k8s.io", Version: "v1", Kind: "UpdateOptions"}:                 meta.UpdateOptions{},
	{Group: "meta.k8s.io", Version: "v1", Kind: "PartialObjectMetadata"}:         meta.PartialObjectMetadata{},
	{Group: "meta.k8s.io", Version: "v1", Kind: "PartialObjectMetadataList"}:     meta.PartialObjectMetadataList{},
	{Group: "meta.k8s.io", Version: "v1", Kind: "Table"}:                         meta.Table{},
	{Version: "v1", Kind: "APIGroup"}:                                            meta.APIGroup{},
	{Version: "v1", Kind: "APIGroupList"}:                                        meta.APIGroupList{},
	{Version: "v1", Kind: "APIResourceList"}:                                     meta.APIResourceList{},
	{Version: "v1", Kind: "APIVersions"}:                                         meta.APIVersions{},
	{Version: "v1", Kind: "DeleteOptions"}:                                       meta.DeleteOptions{},
	{Version: "v1", Kind: "Status"}:                                              meta.Status{},
}

// described lists types that only OpenAPI documents show.
var described = []any{meta.WatchEvent{}, meta.Patch{}, version.Info{}}

// optionKinds are registered into every group by the scheme, but are sent only in queries.
var optionKinds = map[string]bool{
	"WatchEvent": true, "ListOptions": true, "GetOptions": true, "DeleteOptions": true, "CreateOptions": true,
	"UpdateOptions": true, "PatchOptions": true, "ExportOptions": true, "PodLogOptions": true, "PodExecOptions": true,
	"PodAttachOptions": true, "PodPortForwardOptions": true, "PodProxyOptions": true, "NodeProxyOptions": true,
	"ServiceProxyOptions": true, "InternalEvent": true, "SerializedReference": true, "RangeAllocation": true,
	"PodStatusResult": true,
}

func main() {
	scheme := runtime.NewScheme()
	must(clientscheme.AddToScheme(scheme))
	must(apiextensions.AddToScheme(scheme))
	must(apiregistration.AddToScheme(scheme))

	kinds := map[schema.GroupVersionKind]reflect.Type{}
	for _, gv := range served {
		for kind, t := range scheme.KnownTypes(gv) {
			if !optionKinds[kind] && t.PkgPath() != "k8s.io/apimachinery/pkg/apis/meta/internalversion" {
				kinds[gv.WithKind(kind)] = t
			}
		}
	}
	for gvk, value := range spoken {
		kinds[gvk] = reflect.TypeOf(value)
	}

	order := make([]schema.GroupVersionKind, 0, len(kinds))
	for gvk := range kinds {
		order = append(order, gvk)
	}
	sort.Slice(order, func(i, j int) bool { return order[i].String() < order[j].String() })

	table := newTable(relations())
	ids := map[schema.GroupVersionKind]int{}
	for _, gvk := range order {
		ids[gvk] = table.object(kinds[gvk])
	}
	for _, value := range described {
		table.object(reflect.TypeOf(value))
	}

	write("../../crates/schema/src/protobuf/vectors.tsv", func(out io.Writer) { vectors(out, order, kinds) })
	write("../../crates/schema/src/facts/internal.tsv", func(out io.Writer) { internal(out, order) })
	write("../../crates/schema/src/facts/types.tsv", func(out io.Writer) { types(out, table, order, ids) })
}

// write replaces a file of the tree; the command runs in its own folder.
func write(path string, content func(io.Writer)) {
	file, err := os.Create(path)
	must(err)
	out := bufio.NewWriter(file)
	content(out)
	must(out.Flush())
	must(file.Close())
}

func types(out io.Writer, table *table, order []schema.GroupVersionKind, ids map[schema.GroupVersionKind]int) {
	fmt.Fprintln(out, "# Made by `cargo xtask facts` from the published modules; do not edit. The form is explained in table.rs.")
	table.print(out)
	for _, gvk := range order {
		fmt.Fprintf(out, "K\t%s\t%s\t%s\t%d\n", gvk.Group, gvk.Version, gvk.Kind, ids[gvk])
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "facts:", strings.TrimSpace(err.Error()))
		os.Exit(1)
	}
}
